"""Every loss against a plain NumPy transcription of its equation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import Agent
from riskpath.agents.config import TwinTarget
from riskpath.nn.losses import (
    _all_pairs,
    _target_by_target,
    in_parts,
    midpoints,
    quantile_huber,
    smooth_pinball,
    stratified,
)
from riskpath.types import EnvSpec, Transition, Window
from tests.agents.clocks import clock_at

SPEC = EnvSpec(3, (), num_states=5, max_episode_steps=4)
NETWORK = rp.Network(hidden=(8,))
TRAINING = rp.Training(
    batch_size=4,
    num_quantiles=5,
    num_target_quantiles=6,
    num_action_quantiles=7,
    kappa=0.7,
    reward_scale=0.3,
    learning_rate=0.0,
    final_learning_rate=0.0,
)


def huber_by_hand(predicted, taus, target, kappa) -> float:
    total = 0.0
    for theta, tau in zip(predicted, taus, strict=True):
        inner = 0.0
        for y in target:
            u = y - theta
            huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
            inner += abs(tau - (1.0 if u < 0 else 0.0)) * huber / kappa
        total += inner / len(target)
    return total


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("targets", [7, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 6, 8))])
def test_the_loss_of_a_cpu_is_that_of_other_devices(targets, equal):
    keys = jax.random.split(jax.random.key(0), 3)
    predicted, target = jax.random.normal(keys[0], (5,)), jax.random.normal(keys[1], (targets,))
    share = jax.nn.softmax(jax.random.normal(keys[2], (targets,)) * (0.0 if equal else 1.0))
    given = (predicted, midpoints(5), target, jnp.asarray(0.3), share)
    for one, other in zip(_target_by_target(*given), _all_pairs(*given, equal=equal), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kappa", [0.01, 0.5, 2.0])
def test_quantile_huber_is_its_formula(kappa):
    rng = np.random.default_rng(0)
    predicted, target = rng.normal(size=4).astype(np.float32), rng.normal(size=7).astype(np.float32)
    taus = rng.uniform(size=4).astype(np.float32)
    value = quantile_huber(jnp.asarray(predicted), jnp.asarray(taus), jnp.asarray(target), kappa)
    assert float(value) == pytest.approx(huber_by_hand(predicted, taus, target, kappa), rel=1e-4)


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_its_gradient_is_that_of_the_formula(scale):
    # As it is used: under vmap, with a traced threshold for each lane, small and large beside the errors.
    rng = np.random.default_rng(2)
    predicted, target = scale * rng.normal(size=(3, 4)), scale * rng.normal(size=(3, 7))
    taus, kappas = rng.uniform(size=4), np.array([0.01, 0.5, 100.0])
    single = [jnp.asarray(x, jnp.float32) for x in (predicted, taus, target, kappas)]
    loss = lambda *x: 3.0 * quantile_huber(*x)
    gradients = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 2)), in_axes=(0, None, 0, 0)))(*single)
    for lane, kappa in enumerate(kappas):
        for i in range(4):
            step = np.where(np.arange(4) == i, 1e-6, 0.0)
            up, down = (huber_by_hand(predicted[lane] + s, taus, target[lane], kappa) for s in (step, -step))
            assert float(gradients[0][lane, i]) == pytest.approx(3.0 * (up - down) / 2e-6, rel=1e-3, abs=1e-4)
    assert not np.asarray(gradients[1]).any()  # nothing is learned through a target


def test_minimising_it_finds_quantiles_if_kappa_is_small_beside_the_spread():
    target = jnp.asarray(np.random.default_rng(1).choice([0.0, 100.0], size=4000, p=[0.25, 0.75]), jnp.float32)
    taus = jnp.array([0.05, 0.15, 0.35, 0.9])
    theta = jnp.full(4, 50.0)
    slope = jax.jit(jax.grad(quantile_huber))
    for _ in range(400):
        theta = theta - 3.0 * slope(theta, taus, target, 1.0)
    np.testing.assert_allclose(theta, [0.0, 0.0, 100.0, 100.0], atol=2.0)


def test_the_smooth_quantile_loss_is_its_formula_and_keeps_the_tails():
    rng = np.random.default_rng(3)
    target = np.sort(rng.normal(size=2000)).astype(np.float32)
    probs = rng.uniform(0.5, 1.5, size=2000).astype(np.float32)
    probs /= probs.sum()
    taus, kappa = np.array([0.05, 0.5, 0.9], np.float32), 0.2
    predicted = np.array([-1.0, 0.2, 2.0], np.float32)
    u = (target[None] - predicted[:, None]).astype(np.float64)
    huber = np.where(np.abs(u) <= kappa, 0.5 * u**2 / kappa, np.abs(u) - 0.5 * kappa)
    by_hand = float((((taus[:, None] - 0.5) * u + 0.5 * huber) * probs).sum())
    given = (jnp.asarray(taus), jnp.asarray(target), jnp.asarray(kappa), jnp.asarray(probs))
    assert float(smooth_pinball(jnp.asarray(predicted), *given)) == pytest.approx(by_hand, rel=1e-4)

    def minimum(loss):
        slope, theta = jax.jit(jax.grad(loss)), jnp.asarray(predicted)
        for _ in range(300):
            theta = theta - 0.3 * slope(theta, *given)
        return np.asarray(theta)

    quantiles = target[np.searchsorted(np.cumsum(probs), taus)]
    shift = kappa * (0.5 - taus)  # towards the median, the bias of the quantile Huber loss
    np.testing.assert_allclose(minimum(quantile_huber) - quantiles, shift, atol=0.03)
    np.testing.assert_allclose(minimum(smooth_pinball), quantiles, atol=0.03)


def test_levels_are_spread_evenly():
    np.testing.assert_allclose(midpoints(4), [0.125, 0.375, 0.625, 0.875])
    taus = np.asarray(stratified(10, key=jax.random.key(0)))
    assert ((taus * 10).astype(int) == np.arange(10)).all()


def window(rng: np.random.Generator, terminated: bool, time: int = 2) -> Window:
    valid = jnp.asarray(np.arange(4) >= 3 - time)
    step = Transition(
        observation=jnp.int32(1),
        action=jnp.int32(2),
        reward=jnp.float32(1.5),
        next_observation=jnp.int32(3),
        next_action_mask=jnp.array([True, False, True]),
        terminated=jnp.array(terminated),
        truncated=jnp.array(False),
        time=jnp.int32(time),
        return_so_far=jnp.float32(4.0),
        extras=jnp.float32(0.4),
    )
    return Window(step, jnp.array([0, 4, 2, 1], jnp.int32), jnp.array([0, 1, 0, 2], jnp.int32), valid)


def batched(sample, count: int):
    return jax.tree.map(lambda x: jnp.asarray(np.stack([x] * count)), sample)


# Compiled as a whole, not operation by operation, like the functions of networks below.
@eqx.filter_jit
def learned_loss(agent: Agent, state, batch, clock, key):
    return agent.update(state, batch, clock, key=key)[1]["loss"]


def loss_of(agent: Agent, state, sample, key, count: int = 1, done: float = 0.0) -> float:
    """Return the loss of a batch that holds the same sample a few times."""
    return float(learned_loss(agent, state, batched(sample, count), clock_at(done), key))


@jax.jit
def drawn_levels(key) -> tuple[jax.Array, jax.Array]:
    draws = jax.random.uniform(key, (11,))
    return in_parts(draws[:5]), in_parts(draws[5:])


def levels(key) -> tuple[np.ndarray, np.ndarray]:
    first, second = drawn_levels(key)
    return np.asarray(first), np.asarray(second)


@eqx.filter_jit
def compiled_quantiles(critic, *inputs) -> jax.Array:
    return critic.quantiles(*inputs)


def quantiles_of(critic, *inputs) -> np.ndarray:
    """Return the quantiles that a critic predicts: of an observation, perhaps an action, and levels."""
    return np.asarray(compiled_quantiles(critic, *map(jnp.asarray, inputs)))


@eqx.filter_jit
def history_quantiles(history, observations, before, at) -> jax.Array:
    return history.head(history.last(observations, before, jnp.ones(len(observations), bool)), at)


def pick(values, mask) -> int:
    return max((i for i in range(len(values)) if mask[i]), key=lambda i: values[i])


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize(
    "risk", [rp.CVaR(0.3), *(pytest.param(risk, marks=pytest.mark.long) for risk in (rp.Mean(), rp.Wang(0.5)))], ids=str
)
def test_iqn(risk, terminated):
    agent = rp.IQN(risk, discount=0.9, network=NETWORK, training=TRAINING)
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample = window(np.random.default_rng(0), terminated).transition
    taus, target_taus = levels(jax.random.key(5))
    online = quantiles_of(state.params, sample.next_observation, risk.distort(midpoints(7)))
    best = pick(online.mean(axis=0), [True, False, True])
    future = quantiles_of(other.params, sample.next_observation, target_taus)[:, best]
    target = 0.3 * 1.5 + 0.9 * (0 if terminated else 1) * future
    predicted = quantiles_of(state.params, sample.observation, taus)[:, 2]
    expected = huber_by_hand(predicted, taus, target, 0.7 * 0.3)
    assert loss_of(agent, state, sample, jax.random.key(5)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("terminated", [False, True])
def test_cvar_drl(terminated):
    agent = rp.CVaRDRL(rp.CVaR(0.3), discount=0.9, network=NETWORK, training=TRAINING)
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample = window(np.random.default_rng(0), terminated).transition
    taus, target_taus = levels(jax.random.key(5))
    threshold = (0.4 - 0.3 * 1.5) / 0.9
    z = quantiles_of(state.params, sample.next_observation, midpoints(7))
    best = pick(np.minimum(z - threshold, 0).mean(axis=0), [True, False, True])
    future = quantiles_of(other.params, sample.next_observation, target_taus)[:, best]
    target = 0.3 * 1.5 + 0.9 * (0 if terminated else 1) * future
    predicted = quantiles_of(state.params, sample.observation, taus)[:, 2]
    assert loss_of(agent, state, sample, jax.random.key(5)) == pytest.approx(
        huber_by_hand(predicted, taus, target, 0.7 * 0.3), rel=1e-4
    )


@pytest.mark.parametrize(
    ("critic", "terminated"),
    [
        *(("convolved", False), ("trajectory", True)),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("convolved", True), ("trajectory", False))),
        *(pytest.param("joint", terminated, marks=pytest.mark.long) for terminated in (False, True)),
    ],
)
def test_tql(critic, terminated):
    risk = rp.CVaR(0.3)
    agent = rp.TQL(risk, discount=0.9, critic=critic, network=NETWORK, training=TRAINING)
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample = window(np.random.default_rng(0), terminated)
    step, alive = sample.transition, 0 if terminated else 1
    taus, target_taus = levels(jax.random.key(5))
    kappa = 0.7 * 0.3

    def history(params, upto: int, at) -> np.ndarray:
        """Z(h, ·; τ) with h the first `upto` tokens of s₀ … s₃, given to the encoder without any padding."""
        obs, before = jnp.array([4, 2, 1, 3][:upto], jnp.int32), jnp.array([0, 0, 2, 2][:upto], jnp.int32)
        return np.asarray(history_quantiles(params.history, obs, before, jnp.asarray(at)))

    def future(params, at) -> np.ndarray:
        return quantiles_of(params.markov, step.next_observation, at)

    if critic == "convolved":
        coarse = midpoints(16)
        past = history(state.params, 4, coarse)[:, 0]
        sums = past[:, None, None] + 0.9**3 * future(state.params, coarse)[None]
        values = [risk.value(sums[:, :, a].ravel()) for a in range(3)]
    else:
        values = history(state.params, 4, risk.distort(np.asarray(midpoints(7)))).mean(axis=0)
    best = pick(values, [True, False, True])

    expected, z = 0.0, np.zeros(6)
    if critic == "trajectory":
        target = np.full(6, 0.3 * 4.0) if terminated else history(other.params, 4, target_taus)[:, best]
        expected += huber_by_hand(history(state.params, 3, taus)[:, 2], taus, target, kappa)
    else:
        z = future(other.params, target_taus)[:, best]
        markov = quantiles_of(state.params.markov, step.observation, taus)[:, 2]
        expected += huber_by_hand(markov, taus, 0.3 * 1.5 + 0.9 * alive * z, kappa)
    if critic == "joint":
        target = 0.3 * 4.0 + 0.9**3 * alive * z
        expected += huber_by_hand(history(state.params, 3, taus)[:, 2], taus, target, kappa)
    if critic == "convolved" and not terminated:
        expected += huber_by_hand(history(state.params, 4, taus)[:, 0], taus, [0.3 * 4.0], kappa)
    assert loss_of(agent, state, sample, jax.random.key(5)) == pytest.approx(expected, rel=1e-4)


# Continuous actions: the critics' losses of IQTD3 and of every form of TQLContinuous.
BOX = EnvSpec(num_actions=0, observation_shape=(2,), max_episode_steps=30, action_size=1)
# Statistics of observations, which learning updates before it computes a loss, are in tests/nn.
BOX_NETWORK = rp.Network(hidden=(8, 8), history_size=5, window=4, normalize_observations=False)


def box_parts(twin_target: TwinTarget, **sizes: int) -> dict[str, Any]:
    quantiles = {"num_quantiles": 5, "num_target_quantiles": 6, "num_action_quantiles": 7, **sizes}
    rates: dict[str, Any] = {"learning_rate": 0.0, "final_learning_rate": 0.0}
    units: dict[str, Any] = {"kappa": 0.7, "reward_scale": 0.3}
    training = rp.Training(batch_size=1, decay_starts=0.0, decay_ends=1.0, **quantiles, **rates, **units)
    actor = rp.ActorTraining(**rates, policy_delay=1, target_policy_noise=0.3, twin_target=twin_target)
    return {"training": training, "actor": actor}


def box_window(terminated: bool) -> Window:
    """The third step of an episode; the first entry of the window belongs to an earlier one."""
    step = Transition(
        observation=jnp.array([0.4, -0.3]),
        action=jnp.array([0.6]),
        reward=jnp.float32(1.5),
        next_observation=jnp.array([-0.2, 0.9]),
        next_action_mask=jnp.ones((0,), bool),
        terminated=jnp.array(terminated),
        truncated=jnp.array(False),
        time=jnp.int32(2),
        return_so_far=jnp.float32(4.0),
        extras=(),
    )
    seen = jnp.array([[9.0, 9.0], [0.1, 0.2], [0.5, -0.6], [0.4, -0.3]])
    return Window(step, seen, jnp.array([[9.0], [9.0], [-0.7], [0.8]]), jnp.array([False, True, True, True]))


def box_keys(key) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The quantile levels of prediction and target, and the noise on the target's action."""

    @jax.jit
    def draws(key) -> Any:
        online, target, step = jax.random.split(key, 3)
        (first,) = jax.random.split(step, 1)
        (sample,) = jax.random.split(first, 1)
        return stratified(5, key=online), stratified(6, key=target), jax.random.normal(sample, (1,))

    taus, target_taus, normal = map(np.asarray, draws(key))
    return taus, target_taus, np.clip(0.3 * normal, -0.75, 0.75)


def pessimistic(twins, x, action, taus, twin_target: str) -> np.ndarray:
    first, second = (quantiles_of(z, x, action, taus) for z in twins)
    if twin_target == "lower_quantiles":
        return np.minimum(first, second)
    return first if first.mean() <= second.mean() else second


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("twin_target", ["lower_mean", pytest.param("lower_quantiles", marks=pytest.mark.long)])
def test_iqtd3(twin_target, terminated):
    agent = rp.IQTD3(rp.CVaR(0.3), discount=0.9, network=BOX_NETWORK, **box_parts(twin_target))
    state, other = (agent.init(BOX, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample = box_window(terminated).transition
    taus, target_taus, noise = box_keys(jax.random.key(5))
    action = np.clip(np.asarray(eqx.filter_jit(other.params.actor)(sample.next_observation)) + noise, -1, 1)
    future = pessimistic(other.params.critic.twins, sample.next_observation, action, target_taus, twin_target)
    target = 0.3 * 1.5 + 0.9 * (0 if terminated else 1) * future
    expected = sum(
        huber_by_hand(quantiles_of(z, sample.observation, sample.action, taus), taus, target, 0.7 * 0.3)
        for z in state.params.critic.twins
    )
    assert loss_of(agent, state, sample, jax.random.key(5)) == pytest.approx(float(expected), rel=1e-4)


# The critic does not matter to the time among its inputs.
@pytest.mark.parametrize(
    ("critic", "time_input", "terminated"),
    [
        *(("convolved", True, False), ("trajectory", False, True)),
        *(pytest.param("convolved", time_input, True, marks=pytest.mark.long) for time_input in (False, True)),
        *(pytest.param("trajectory", time_input, False, marks=pytest.mark.long) for time_input in (False, True)),
        *(pytest.param("joint", True, terminated, marks=pytest.mark.long) for terminated in (False, True)),
    ],
)
def test_tql_continuous(critic, time_input, terminated):
    agent = rp.TQLContinuous(
        rp.CVaR(0.3),
        discount=0.9,
        critic=critic,
        time_input=time_input,
        network=BOX_NETWORK,
        **box_parts("lower_mean"),
    )
    state, other = (agent.init(BOX, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    window, alive, kappa = box_window(terminated), 0 if terminated else 1, 0.7 * 0.3
    step = window.transition
    taus, target_taus, noise = box_keys(jax.random.key(5))

    def features(params, time: int) -> np.ndarray:
        """Features of h_t: s_t, the encoding of the tokens s₀ … s_t without any padding, and the time."""
        states = jnp.array([[0.1, 0.2], [0.5, -0.6], [0.4, -0.3], [-0.2, 0.9]][: time + 1])
        before = jnp.array([[0.0], [-0.7], [0.8], [0.6]][: time + 1])
        encoded = np.asarray(eqx.filter_jit(params.critic.history)(states, before, jnp.ones(time + 1, bool)))[-1]
        clock = [0.9**time, 0.01 * time] if time_input else []
        return np.concatenate([states[-1], encoded, np.array(clock, np.float32)])

    def fit(critics, x, action, target) -> float:
        return sum(huber_by_hand(quantiles_of(z, x, action, taus), taus, target, kappa) for z in critics)

    # The target actor sees the online encoding of the longer history.
    action = np.asarray(eqx.filter_jit(other.params.actor)(jnp.asarray(features(state.params, 3))))
    action = np.clip(action + noise, -1, 1)
    whole, expected = np.full(6, 0.3 * 4.0), 0.0
    if critic == "trajectory":
        if not terminated:
            longer = features(other.params, 3)
            whole = pessimistic(other.params.critic.whole, longer, action, target_taus, "lower_mean")
    else:
        future = pessimistic(other.params.critic.markov, step.next_observation, action, target_taus, "lower_mean")
        expected += fit(state.params.critic.markov, step.observation, step.action, 0.3 * 1.5 + 0.9 * alive * future)
        whole = 0.3 * 4.0 + 0.9**3 * alive * future
    if critic != "convolved":
        expected += fit(state.params.critic.whole, features(state.params, 2), step.action, whole)
    elif not terminated:
        expected += fit([state.params.critic.past], features(state.params, 3), np.zeros(0, np.float32), [0.3 * 4.0])
    assert loss_of(agent, state, window, jax.random.key(5)) == pytest.approx(float(expected), rel=1e-4)
