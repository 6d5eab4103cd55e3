"""Published rivals that learn from rollouts: what they learn from, against NumPy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import riskpath as rp
from riskpath.agents import cvar_policy_gradient, rollout_agent, wcpg
from riskpath.agents.agent import EXPLORE, GREEDY
from riskpath.agents.rollout_agent import Taken
from riskpath.types import EnvSpec, Trajectory, Transition
from tests.agents.clocks import START, clock_at

SPEC = EnvSpec(2, (1,), max_episode_steps=4)
REWARD = np.array([[1, -2, 3], [4, 0, -1], [-5, 2, 2], [1, 1, 6], [0, -3, 2]], np.float32)
ENDED = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]], bool)
SO_FAR = np.array([[1, -2, 3], [5, 0, 2], [-5, 2, 4], [-4, 3, 10], [-4, -3, 2]], np.float32)
TIME = np.array([[0, 3, 0], [1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 0, 0]])
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("unchecked")


def rollout(agent: Any, state: Any, extras: Any) -> Trajectory:
    """Return five steps of three environments, in which four episodes end."""
    array = lambda x: jnp.asarray(x)
    seen = jax.random.normal(KEY, (5, 3, 1))
    action = array(np.zeros((5, 3), np.int32))
    mask = array(np.ones((5, 3, 2), bool))
    no = array(np.zeros((5, 3), bool))
    steps = Transition(
        seen, action, array(REWARD), seen + 1.0, mask, array(ENDED), no, array(TIME), array(SO_FAR), extras
    )
    first = SPEC.first_time_step(jnp.zeros(1), jnp.ones(2, bool))
    return Trajectory(steps, first, ())


def taken(value: Any = 0.0) -> Taken:
    parts = (
        np.zeros((5, 3), np.int32),
        np.full((5, 3), -0.7, "f"),
        np.full((5, 3), value, "f"),
        np.ones((5, 3, 2), bool),
    )
    return Taken(*map(jnp.asarray, parts))


@pytest.fixture
def learned_from(monkeypatch):
    """Replace the gradient steps; return what they would have been given."""
    given: list[Any] = []

    def keep(agent, state, loss, samples, clock, *, key):
        given[:] = [loss, *jax.tree.map(lambda x: x.reshape(5, 3, *x.shape[1:]), samples)]
        return state, {}

    for module in (cvar_policy_gradient, rollout_agent, wcpg):
        monkeypatch.setattr(module, "several_epochs", keep)
    return given


def advantages_of(delta: np.ndarray, decay: float) -> np.ndarray:
    found, later = np.zeros_like(delta), np.zeros(delta.shape[1])
    for t in reversed(range(len(delta))):
        found[t] = later = delta[t] + decay * np.where(ENDED[t], 0.0, later)
    return found


def test_the_cvar_gradient_counts_the_worst_episodes(learned_from):
    agent = rp.CVaRPolicyGradient("cvar:0.5", network=rp.Network(hidden=(4,)))
    state = eqx.filter_jit(agent.init)(SPEC, key=KEY)
    state, _ = agent.update(state, rollout(agent, state, taken()), START, key=KEY)
    loss, steps, weights = learned_from
    # The returns are 5, −2, 3 and 10; the quantile at 0.5 is 5. Steps after the last end are not known.
    whole = np.array([[5, -2, 10], [5, 3, 10], [0, 3, 10], [0, 3, 10], [0, 0, 0]])
    known = np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(weights, known * np.minimum(whole - 5, 0) * 15 / (0.5 * 4), rtol=1e-6)
    assert float(state.params.cvar) == pytest.approx((-2 + 3) / 2)
    flat = jax.tree.map(lambda x: x.reshape(15, *x.shape[2:]), steps)
    found, _ = jax.jit(loss)(state.params, flat, weights.ravel())
    log_probs = np.asarray(jax.nn.log_softmax(jax.jit(jax.vmap(state.params.policy.network))(flat.observation)))
    entropy = -np.sum(np.exp(log_probs) * log_probs, axis=1)
    wanted = -np.mean(np.asarray(weights).ravel() * log_probs[:, 0]) - 0.005 * np.mean(entropy)
    assert float(found) == pytest.approx(wanted, rel=1e-4)


def test_soft_risk_lowers_the_level():
    agents = [rp.CVaRPolicyGradient("cvar:0.1", soft_risk=s) for s in (0.4, 0.0)]
    levels = [[float(agent.level_at(clock_at(done))) for agent in agents] for done in (0.0, 0.2, 0.4, 0.9)]
    np.testing.assert_allclose(levels, [[1.0, 0.1], [0.55, 0.1], [0.1, 0.1], [0.1, 0.1]], rtol=1e-5)


def test_return_capping_earns_the_capped_return_and_moves_the_cap(learned_from):
    training = rp.RolloutTraining(gae_lambda=0.9)
    agent = rp.ReturnCapping(
        "cvar:0.5", first_cap=4.0, cap_step=0.25, network=rp.Network(hidden=(4,)), training=training
    )
    state = eqx.filter_jit(agent.init)(SPEC, key=KEY)
    before = SO_FAR - REWARD
    see = jax.jit(jax.vmap(jax.vmap(lambda r, t: agent._see(state, r, t))))
    seen = see(jnp.asarray(before), jnp.asarray(TIME))
    new, _ = agent.update(state, rollout(agent, state, (taken(1.5), seen, jnp.asarray(before))), START, key=KEY)
    _, steps, advantages, targets = learned_from
    gains = np.minimum(SO_FAR, 4.0) - np.minimum(before, 4.0)

    def value_after(observation: Any, so_far: Any, time: Any) -> Any:
        return state.params.of(observation, jnp.ones(2, bool), agent._see(state, so_far, time + 1))[1]

    later = np.asarray(jax.jit(jax.vmap(jax.vmap(value_after)))(steps.next_observation, SO_FAR, TIME.astype("i")))
    wanted = advantages_of(gains + np.where(ENDED, 0, later) - 1.5, 0.9)
    np.testing.assert_allclose(advantages, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(targets, wanted + 1.5, rtol=1e-4, atol=1e-5)
    assert float(new.params.plan) == pytest.approx(4.0 + 0.25 * (5.0 - 4.0))  # the returns are 5, −2, 3 and 10
    assert gains[:2, 0].sum() == 4.0


def test_wcpg_learns_mean_and_variance_and_weighs_them_by_the_level(learned_from):
    agent = rp.WCPG(discount=0.8, network=rp.Network(hidden=(4,)), training=rp.RolloutTraining(gae_lambda=0.9))
    state = eqx.filter_jit(agent.init)(SPEC, key=KEY)
    level, variance = np.linspace(0.05, 0.95, 15).reshape(5, 3).astype("f"), np.full((5, 3), 2.0)
    batch = rollout(agent, state, (taken(1.5), jnp.asarray(level), jnp.asarray(variance, jnp.float32)))
    agent.update(state, batch, START, key=KEY)
    loss, steps, advantages, targets = learned_from
    of = jax.jit(jax.vmap(lambda o, x: wcpg.read(state.params, o, jnp.ones(2, bool), x)[1:]))
    found = of(steps.next_observation.reshape(15, 1), level.ravel())
    (v, upsilon), g = (np.asarray(x).reshape(5, 3) for x in found), np.where(ENDED, 0.0, 0.8)
    mean = advantages_of(REWARD + g * v - 1.5, 0.8 * 0.9)
    moment = advantages_of(REWARD**2 + 2 * g * REWARD * v + g**2 * (upsilon + v**2) - 2 - 1.5**2, 0.64 * 0.9)
    k = norm.pdf(norm.ppf(level)) / level
    np.testing.assert_allclose(advantages, mean - k / (2 * 2**0.5) * (moment - 3 * mean), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(targets[..., 0], 1.5 + mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(targets[..., 1], np.maximum(2 + moment - 3 * mean, 1e-4), rtol=1e-4, atol=1e-4)
    flat = jax.tree.map(lambda x: x.reshape(15, *x.shape[2:]), (steps, advantages, targets))
    changed = eqx.tree_at(lambda f: f[2], flat, flat[2] + jnp.array([[0.0, 1.0]]))
    values = [float(jax.jit(loss)(state.params, *given)[0]) for given in (flat, changed)]
    spread = np.asarray(of(flat[0].observation, level.ravel())[1])
    aim = np.asarray(flat[2][:, 1])
    apart = [np.mean(spread + y - 2 * np.sqrt(spread * y)) for y in (aim, aim + 1.0)]
    assert values[1] - values[0] == pytest.approx(0.25 * (apart[1] - apart[0]), rel=1e-3)


def test_wcpg_draws_a_level_for_every_episode():
    agent = rp.WCPG("cvar:0.1", network=rp.Network(hidden=(4,)))
    state = eqx.filter_jit(agent.init)(SPEC, key=KEY)
    first = SPEC.first_time_step(jnp.zeros(1), jnp.ones(2, bool))
    act = jax.jit(jax.vmap(lambda key: agent.act(state, jnp.ones(()), first, key=key, mode=EXPLORE).memory))
    levels = np.asarray(act(jax.random.split(KEY, 9))).tolist()
    assert len({round(level, 4) for level in levels}) == 9
    later = eqx.tree_at(lambda s: s.time, first, jnp.int32(1))
    both = jax.jit(lambda level: [agent.act(state, level, later, key=KEY, mode=m).memory for m in (EXPLORE, GREEDY)])
    assert [float(level) for level in both(jnp.float32(0.3))] == pytest.approx([0.3, 0.1])


@pytest.mark.parametrize("kind", [rp.CVaRPolicyGradient, rp.ReturnCapping, rp.WCPG])
def test_other_measures_are_refused(kind):
    with pytest.raises(rp.RiskpathError, match=f"{kind.__name__} maximises CVaR only, got wang"):
        kind("wang:0.5")
    with pytest.raises(rp.RiskpathError, match=r"leave network\.head and network\.window out"):
        kind(network=rp.Network(window=2))


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (rp.CVaRPolicyGradient, {"soft_risk": 2.0}, "soft_risk must be from 0 to 1, got 2"),
        (rp.ReturnCapping, {"cap_step": -1.0}, "cap_step must be from 0 to 1, got -1"),
    ],
)
def test_wrong_numbers_are_refused(kind, fields, message):
    with pytest.raises(rp.RiskpathError, match=message):
        kind(**fields)


@pytest.mark.long
@pytest.mark.parametrize("kind", [rp.CVaRPolicyGradient, rp.ReturnCapping, rp.WCPG])
def test_it_learns_to_bet_or_not(kind):
    """One bet with the higher mean and the larger variance.

    At level 0.1 WCPG prefers the other action wherever its policy is, at 0.95 the bet. With 10 or −10 for a bet it
    would have two optima: where the bet is certain, a little of the safe action adds variance.
    """
    bet, safe = [(0.8, 3.0, "end"), (0.2, -3.0, "end")], [(0.5, 2.0, "end"), (0.5, 0.0, "end")]
    outcomes = {("s", "bet"): bet, ("s", "safe"): safe}
    problem: Any = rp.FiniteMDP.from_outcomes(outcomes, "s", terminal=["end"])
    training = rp.RolloutTraining(length=4, epochs=1, minibatches=1, learning_rate=0.02, entropy_weight=0.2)
    agents = [kind(f"cvar:{level}", network=rp.Network(hidden=(8,)), training=training) for level in (0.1, 0.95)]
    run = rp.train(agents, problem, steps=16_384, num_envs=64, seeds=2)
    best = [rp.solve(problem, agent.risk).value for agent in agents]
    np.testing.assert_allclose(run.values(), np.tile(np.array(best)[:, None], 2), atol=1e-5)
