"""Agents with continuous actions: the gradient through the distortion, the convolution, exploration, a short run."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.actor_critic import lower_law
from riskpath.agents.agent import EXPLORE, GREEDY, WARM_UP, Mode
from riskpath.agents.exploration import explore, no_noise
from riskpath.mdp.law import Law
from riskpath.nn.critics import make_twins
from riskpath.nn.losses import midpoints
from riskpath.training import fused_loop as loop
from riskpath.training.lanes import start
from riskpath.types import EnvSpec

MEASURES = [rp.Mean(), rp.CVaR(0.25), rp.Wang(0.75), rp.Wang(-0.75), rp.POW(-2.0), rp.CPW(0.71)]
BRIEFLY = {"convolved": (1, 5), "joint": (), "trajectory": ()}
"""Measures of each critic that are part of every run; the joint and the trajectory form have the same atoms."""
SPEC = EnvSpec(num_actions=0, observation_shape=(2,), max_episode_steps=30, action_size=1)
NETWORK = rp.Network(hidden=(16, 16), history_size=8, window=4)
SMALL = rp.Network(hidden=(8,), history_size=4, window=2)
FEW: dict[str, Any] = {"batch_size": 4, "num_quantiles": 4, "num_target_quantiles": 4, "num_action_quantiles": 4}


def agent_of(kind: str, risk=rp.CVaR(0.25), **fields):  # noqa: B008
    if kind == "IQTD3":
        return rp.IQTD3(risk, network=NETWORK, **fields)
    return rp.TQLContinuous(risk, critic=kind, convolved_taus=8, network=NETWORK, **fields)  # pyright: ignore[reportArgumentType]


@functools.cache
def fresh_critics(form: str) -> Any:
    return agent_of(form).init(SPEC, key=jax.random.key(1)).params.critic


@eqx.filter_jit
def worth_and_slope(agent: Any, critics: Any, x: Any, action: Any, time: Any) -> Any:
    """Return β of the law that the actor maximises, and its derivative in the action."""
    return jax.value_and_grad(lambda a: agent.risk.value(agent._atoms(critics, x, x[:2], a, time)))(action)


@pytest.mark.parametrize(
    ("critic", "risk"),
    # A measure does not know which critic the atoms come from: two measures with one critic, one with another.
    [
        pytest.param(critic, risk, marks=[] if number in BRIEFLY[critic] else pytest.mark.long)
        for critic in ("convolved", "joint", "trajectory")
        for number, risk in enumerate(MEASURES)
    ],
    ids=str,
)
def test_the_actors_gradient_flows_through_the_distortion(critic, risk):
    # Against a central difference in the action; levels are arrays, so that those of one measure share a program.
    agent = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), agent_of(critic, risk))
    x, step = jax.random.normal(jax.random.key(2), (2 + 8 + 2,)), 2e-2
    at = lambda action: worth_and_slope(agent, fresh_critics(critic), x, action, jnp.int32(3))
    for initial in (-0.4, 0.3):
        action = jnp.array([initial])
        slope = float(at(action)[1][0])
        numeric = float((at(action + step)[0] - at(action - step)[0]) / (2 * step))
        assert slope == pytest.approx(numeric, rel=0.1, abs=2e-3)
        assert slope != 0.0


@pytest.mark.parametrize(
    "risk",
    [
        pytest.param(risk, marks=[] if number in BRIEFLY["convolved"] else pytest.mark.long)
        for number, risk in enumerate(MEASURES)
    ],
    ids=str,
)
def test_the_convolved_measure_is_that_of_the_exact_convolution(risk):
    agent: Any = agent_of("convolved", risk, discount=0.9)
    critics = fresh_critics("convolved")
    x, action = jax.random.normal(jax.random.key(2), (2 + 8 + 2,)), jnp.array([0.2])
    levels = midpoints(8)
    past = np.asarray(critics.past.quantiles(x, jnp.zeros((0,)), levels), float)
    first, second = (np.asarray(z.quantiles(x[:2], action, levels), float) for z in critics.markov)
    even = np.full(8, 1 / 8)
    exact = Law((past - past.mean()) / 0.9**3, even).convolve(Law((first + second) / 2, even))
    believed = eqx.filter_jit(lambda time: agent.risk.value(agent._atoms(critics, x, x[:2], action, time)))
    value = believed(jnp.int32(3))
    assert float(value) == pytest.approx(float(risk.value(exact)), abs=1e-4)
    # At the start nothing is past.
    alone = believed(jnp.int32(0))
    assert float(alone) == pytest.approx(float(risk.value(Law((first + second) / 2, even))), abs=1e-4)


def test_the_target_is_one_whole_law_of_the_twins():
    twins, taus = make_twins(3, (8,), key=jax.random.key(0)), jnp.linspace(0.05, 0.95, 9)
    x, action = jnp.array([0.3, -0.2]), jnp.array([0.5])
    laws = [np.asarray(z.quantiles(x, action, taus)) for z in twins]
    chosen = lower_law(rp.ActorTraining(), twins, x, action, taus)
    np.testing.assert_allclose(chosen, min(laws, key=lambda law: law.mean()), rtol=1e-6)
    lowest = lower_law(rp.ActorTraining(twin_target="lower_quantiles"), twins, x, action, taus)
    np.testing.assert_allclose(lowest, np.minimum(*laws), rtol=1e-6)


def explored_actions(
    mode: Mode, ou_episodes: float, episodes: float = 0.75, steps: int = 400, seed: int = 0
) -> np.ndarray:
    """Return the actions of one long episode whose actor always chooses 0.2."""
    exploration = rp.ActionNoise(ou_episodes=jnp.asarray(ou_episodes), episodes=jnp.asarray(episodes))
    keys = jax.random.split(jax.random.key(seed), steps)
    return np.asarray(episode_of(exploration, jax.tree.map(jnp.asarray, mode), keys))


@eqx.filter_jit
def episode_of(exploration: rp.ActionNoise, mode: Mode, keys: Any) -> Any:
    def step(carry, key):
        noise, time = carry
        shown = SPEC.first_time_step(jnp.zeros(2), jnp.ones((0,), bool))
        shown = eqx.tree_at(lambda s: s.time, shown, time)
        action, noise = explore(exploration, jnp.array([0.2]), noise, shown, key=key, mode=mode)
        return (noise, time + 1), action[0]

    return jax.lax.scan(step, (no_noise(1), jnp.int32(0)), keys)[1]


def test_exploration_follows_its_settings():
    own = np.float32(0.2)
    assert (explored_actions(GREEDY, 1.0) == own).all()  # no exploration while acting greedily
    noisy = explored_actions(EXPLORE, 1.0, episodes=1.0)
    assert np.corrcoef(noisy[:-1], noisy[1:])[0, 1] > 0.6  # one swing lasts many steps
    assert noisy.std() > 0.4
    assert np.abs(noisy).max() <= 1.0
    held = explored_actions(EXPLORE, 0.0, episodes=1.0)
    changes = 1 + (np.diff(held) != 0).sum()
    assert 400 / 40 < changes < 400 / 5  # a random action is held for 15 steps on average
    assert 0.2 < (held == own).mean() < 0.8
    for ou_episodes in (0.0, 1.0):
        assert not (explored_actions(WARM_UP, ou_episodes) == own).any()  # the warm-up does nothing but explore


def test_some_episodes_do_not_explore():
    given = rp.ActionNoise(), jnp.array([0.2]), no_noise(1), SPEC.first_time_step(jnp.zeros(2), jnp.ones((0,), bool))
    kind_of = jax.jit(jax.vmap(lambda key: explore(*given, key=key, mode=EXPLORE)[1].kind))
    kinds = np.asarray(kind_of(jax.random.split(jax.random.key(3), 2_000)))
    assert float((kinds < 0.25).mean()) == pytest.approx(0.25, abs=0.03)


LEARNING = rp.Training(
    batch_size=32,
    num_quantiles=8,
    num_target_quantiles=8,
    num_action_quantiles=16,
    learning_starts=200,
    buffer_size=2_000,
    train_freq=4,
    learning_rate=3e-3,
)
ACTOR = rp.ActorTraining(learning_rate=3e-3)


class TwoBets(rp.Environment):
    """Two bets on normal variables: the first is to be taken, the second to be taken the other way round."""

    unit: jax.Array = eqx.field(default=1.0, converter=jnp.asarray)
    """Of rewards."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(num_actions=0, observation_shape=(1,), max_episode_steps=2, action_size=1)

    def reset(self, key: Any) -> Any:
        return jnp.zeros((1,)), jnp.zeros(())

    def step(self, key: Any, state: Any, action: Any) -> Any:
        reward = self.unit * action[0] * (jnp.where(state > 0, -2.0, 2.5) + jax.random.normal(key))
        return (state + 1)[None], state + 1, reward, state > 0, jnp.zeros((), bool)

    def action_mask(self, state: Any) -> Any:
        return jnp.ones((0,), bool)


BETS = TwoBets()
BEST = 4.5 - 1.2711 * 2**0.5
"""CVaR at 0.25 of both bets: a standard normal variable has −1.2711."""


def learner(kind: str) -> Any:
    network = rp.Network(hidden=(16,), history_size=8, window=2)
    if kind == "IQTD3":
        return rp.IQTD3(rp.CVaR(0.25), discount=1.0, network=network, training=LEARNING, actor=ACTOR)
    return rp.TQLContinuous(
        rp.CVaR(0.25), discount=1.0, convolved_taus=8, network=network, training=LEARNING, actor=ACTOR
    )


@pytest.fixture(scope="module")
def improved() -> Any:
    """Return a function of the agent: a short run, and the values of its policies before and after."""

    @functools.cache
    def train(kind: str) -> tuple[rp.Run, np.ndarray, np.ndarray]:
        run = rp.train(learner(kind), BETS, steps=200, seeds=2, num_envs=4)
        before = run.evaluate(1_000).values()[0]
        run = rp.train(run, steps=1_600)
        return run, before, run.evaluate(1_000).values()[0]

    return train


@pytest.mark.long  # `make test` lets DSAC learn
@pytest.mark.parametrize("kind", ["IQTD3", "convolved"])
def test_a_short_run_finds_the_best_bets(kind, improved, unchecked):
    _, before, after = improved(kind)
    assert (before < BEST - 1.5).all(), before
    assert after == pytest.approx([BEST, BEST], abs=0.5), after


@pytest.mark.long  # test_scales.py compares units of a discrete agent
def test_rewards_times_1024_give_the_same_decisions_bit_for_bit(unchecked):
    # As in test_scales.py; here, because the program of the test before serves it.
    one, other = (rp.train(learner("IQTD3"), TwoBets(unit), steps=400, seeds=2, num_envs=4) for unit in (1.0, 1024.0))
    parameters = (jax.tree.leaves(eqx.filter(run.lanes.agent_state.params, eqx.is_array)) for run in (one, other))
    for a, b in zip(*parameters, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(1024 * one.lanes.return_so_far, other.lanes.return_so_far)
    np.testing.assert_array_equal(1024 * one.estimates(), other.estimates())
    assert int(one.lanes.clock.updates) > 0


# The losses of the two other forms are in test_losses.py, their shapes in test_agent.py.
@pytest.mark.long  # `make test` lets DSAC learn
@pytest.mark.parametrize(
    "kind",
    ["IQTD3", "convolved", "joint", "trajectory"],
)
def test_every_form_trains_and_acts(kind, improved, unchecked):
    if kind in ("IQTD3", "convolved"):
        run, other = improved(kind)[0], BETS
    else:
        training, other = (
            rp.Training(**FEW, learning_starts=0, buffer_size=500),
            rp.RiskyMountainCar(0.5, 30),
        )
        agent = eqx.tree_at(lambda a: a.network, agent_of(kind, training=training), SMALL)
        run = rp.train(agent, rp.RiskyMountainCar(0.5, 40), steps=200, seeds=2, num_envs=4)
    assert run.steps >= 200
    policy, memory, shown = run.policy(1), None, np.full(run.spec.observation_shape, 0.01, np.float32)
    for _ in range(3):
        action, memory = policy(shown, memory)
        assert action.shape == (1,)
        assert abs(action[0]) <= 1
    assert np.isfinite(run.estimates()).all()
    assert policy.quantiles(shown).keys() == {0}
    sample = run.evaluate(1_000, env=other)  # as many as before: the same program
    assert sample.returns.shape == (1, 2, 1_000)
    assert sample.finished == 1.0
    if other is not BETS:
        assert (sample.returns < 0).all()


@pytest.mark.parametrize("kind", ["IQTD3", "convolved"])
def test_discrete_actions_are_refused(kind, unchecked):
    with pytest.raises(rp.RiskpathError, match="needs continuous actions, but this environment has discrete actions"):
        rp.train(agent_of(kind), "RiskyGrid", steps=10)


@pytest.mark.long  # tests/agents/test_replay_buffer.py asks the same of an agent with a history
def test_the_replay_buffer_is_not_copied_in_the_loop(unchecked):
    lanes = start([learner("convolved")], [BETS], 2, 4, 0)
    lowered = loop.chunk.lower(lanes, BETS.spec, jnp.int32(1)).lowered  # pyright: ignore[reportFunctionMemberAccess]
    text = lowered.compile().as_text()
    shape = "f32[" + ",".join(map(str, lanes.store.rows.shape)) + "]"
    bodies = [part for part in text.split("\n\n") if "ENTRY" not in part]
    assert shape in text
    assert not any(
        " copy(" in line and shape in line.split(" copy(")[0] for part in bodies for line in part.split("\n")
    )
    assert eqx.is_array(lanes.store.rows)
