"""Histories, as networks read them and as rows of a table, and tables that learn exact values."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import action_numbers, state_numbers
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.nn.critics import HistoryCritic, MarkovCritic
from riskpath.nn.history_encoder import HistoryEncoder, HistoryIndex
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.training.inputs import as_environment
from riskpath.types import EnvSpec, Transition, Window

NUMBERED = EnvSpec(3, (), num_states=5, max_episode_steps=6)
VECTORS = EnvSpec(3, (2,), max_episode_steps=6)


def tokens(spec: EnvSpec, length: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Random observations and the actions before them."""
    rng = np.random.default_rng(seed)
    obs = (
        rng.normal(size=(length, *spec.observation_shape)) if spec.num_states is None else rng.integers(5, size=length)
    )
    kind = jnp.float32 if spec.num_states is None else jnp.int32
    return jnp.asarray(obs, kind), jnp.asarray(rng.integers(3, size=length), jnp.int32)


@pytest.mark.parametrize(
    ("spec", "length", "model"),  # 20: as a loop
    [(VECTORS, 4, "gru"), (NUMBERED, 20, "gru"), (NUMBERED, 20, "lstm"), (NUMBERED, 20, "transformer")],
)
def test_features_of_a_history(spec, length, model):
    encoder = ObservationEncoder(spec, False, None, key=jax.random.key(0))
    history = eqx.filter_jit(HistoryEncoder(encoder, 8, model, key=jax.random.key(1)))
    obs, before = tokens(spec, length)
    valid = jnp.ones(length, bool)
    features = np.asarray(history(obs, before, valid))

    # What stands before the episode leaves no trace, whatever it is.
    rubbish, rubbish_before = tokens(spec, 3, seed=1)
    padded = history(
        jnp.concatenate([rubbish, obs]), jnp.concatenate([rubbish_before, before]), jnp.arange(length + 3) >= 3
    )
    np.testing.assert_allclose(padded[3:], features, atol=1e-5)
    # No action came before the first state.
    np.testing.assert_allclose(history(obs, before.at[0].set((before[0] + 1) % 3), valid), features, atol=1e-6)
    # A prefix does not see what follows it; all after a change do see it.
    for changed in ((obs.at[2].set((obs[2] + 1) % 5), before), (obs, before.at[2].set((before[2] + 1) % 3))):
        other = np.asarray(history(*changed, valid))
        np.testing.assert_allclose(other[:2], features[:2], atol=1e-6)
        assert (np.abs(other[2:] - features[2:]).max(axis=1) > 1e-6).all()
    # The order matters.
    swapped = jnp.array([1, 0, *range(2, length)])
    assert np.abs(np.asarray(history(obs[swapped], before[swapped], valid))[-1] - features[-1]).max() > 1e-6


# A problem whose actions do not determine its states.
RANDOM = rp.FiniteMDP.from_outcomes(
    {
        ("s0", "a"): [(0.5, 0.0, "s1"), (0.5, 0.0, "s2")],
        ("s0", "b"): [(0.5, 0.0, "s1"), (0.5, 1.0, "s2")],
        ("s1", "a"): [(0.5, 1.0, "s3"), (0.5, 0.0, "end")],
        ("s2", "b"): [(1.0, 0.0, "s3")],
        ("s3", "a"): [(1.0, 2.0, "end")],
        ("s3", "b"): [(1.0, 3.0, "end")],
    },
    {"s0": 0.5, "s1": 0.5},
)


def histories(mdp: rp.FiniteMDP) -> Iterator[tuple[Any, ...]]:
    """Every (s₀, a₀, …, s_t) in which something is to be decided."""
    grown = [(state,) for state in mdp.start]
    while grown:
        seen = grown.pop()
        if mdp.is_terminal(seen[-1], len(seen) // 2):
            continue
        yield seen
        for action in mdp.actions(seen[-1]):
            grown += [(*seen, action, state) for state in {o.next for o in mdp.outcomes[seen[-1]][action]}]


@pytest.mark.parametrize(
    ("mdp", "deterministic"),
    [(rp.ThreeState().mdp(), True), (rp.RiskyGrid().mdp(), True), (RANDOM, False)],
    ids=["ThreeState", "RiskyGrid", "random transitions"],
)
def test_every_history_has_a_number_of_its_own(mdp, deterministic):
    spec = as_environment(mdp).spec
    assert spec.deterministic == deterministic
    assert spec.max_episode_steps is not None
    numbers, states, actions = HistoryIndex(spec, spec.max_episode_steps), state_numbers(mdp), action_numbers(mdp)
    number = eqx.filter_jit(numbers)
    found: dict[int, tuple[Any, ...]] = {}
    for seen in histories(mdp):
        length = len(seen[::2])
        pad = spec.max_episode_steps - length
        valid = jnp.array([False] * pad + [True] * length)
        rows = set()
        for rubbish in (0, 1):  # before the episode, and before its first state
            obs = [rubbish] * pad + [states[state] for state in seen[::2]]
            before = [rubbish] * (pad + 1) + [actions[action] for action in seen[1::2]]
            rows.add(int(number(jnp.array(obs, jnp.int32), jnp.array(before, jnp.int32), valid)[-1]))
        (row,) = rows
        assert 0 < row < numbers.rows
        assert found.setdefault(row, seen) == seen
    assert len(found) > 2


def test_numbers_of_a_rolling_window_forget_the_oldest_token():
    numbers = HistoryIndex(EnvSpec(3, (), num_states=5), 2)
    obs, before = jnp.array([0, 4, 2, 1], jnp.int32), jnp.array([0, 1, 0, 2], jnp.int32)
    valid = jnp.ones(4, bool)
    rows = numbers(obs, before, valid)
    other = numbers(obs.at[0].set(3), before, valid)
    assert rows[1] != other[1]
    assert (rows[2:] == other[2:]).all()
    assert rows[3] != numbers(obs.at[2].set(3), before, valid)[3]


TABLE = rp.Network(head="table")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: rp.train(rp.TQL(network=TABLE), rp.RiskyGrid(forks=8), steps=9),
            "a table of [0-9]+ rows is too large",
        ),
        (lambda: HistoryIndex(VECTORS, 2), "a table needs discrete states and actions; use head='factored'"),
        (lambda: MarkovCritic(TABLE, VECTORS, 4, key=jax.random.key(0)), "a table needs discrete states; use"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_line(make, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


# Tables on the bet, lost with probability 0.2, well away from the level 0.1: the values of every action after every
# history must be the exact ones.
BET, RISK, ENVS, CELLS = rp.ThreeState(p_win=0.8), rp.CVaR(0.1), 16, 25
TRAINING = rp.Training(
    learning_rate=1e-2,
    final_learning_rate=1e-4,
    decay_ends=1.0,
    batch_size=64,
    num_quantiles=CELLS,
    num_target_quantiles=CELLS,
    num_action_quantiles=250,
    learning_starts=1_600,
    train_freq=ENVS,
    target_update_interval=50,
)
EXPLORATION = rp.EpsilonGreedy(initial_eps=1.0, final_eps=0.5)


def worth(*actions: str) -> float:
    return float(RISK.value(BET.mdp().evaluate(list(actions))))


def learned(kind: Any, **fields: Any) -> LearnedPolicy:
    agent = kind(RISK, discount=1.0, network=TABLE, training=TRAINING, exploration=EXPLORATION, **fields)
    return rp.train(agent, BET, steps=1_600 * ENVS, num_envs=ENVS).policy()


def check_quantiles(policy: Any, state: str, memory: Any = None) -> None:
    """Two and a half cells are the worst tenth."""
    believed, cells = policy.estimate(state, memory), policy.quantiles(state, memory, count=CELLS)
    for action, value in believed.items():
        assert np.array([0.4, 0.4, 0.2]) @ cells[action][:3] == pytest.approx(value, abs=1e-2)


def test_a_table_of_iqn_learns_exact_values(unchecked):
    policy = learned(rp.IQN)
    assert policy.estimate("s1") == pytest.approx({"risky": -10.0, "safe": -5.0}, abs=0.5)
    per_step = {"risky": worth("risky", "safe"), "safe": worth("safe", "safe")}
    assert policy.estimate("s0") == pytest.approx(per_step, abs=0.5)
    law = np.sort(np.repeat([-15.0, 95.0], [CELLS // 5, CELLS - CELLS // 5]))
    assert np.abs(policy.quantiles("s0", count=CELLS)["risky"] - law).mean() < 3.0
    check_quantiles(policy, "s0")


# Networks of the two other critics learn known values in tests/training/test_train.py.
@pytest.mark.long
@pytest.mark.parametrize("critic", ["trajectory", "joint", "convolved"])
def test_a_table_of_tql_learns_exact_values(critic, unchecked):
    policy = learned(rp.TQL, critic=critic)
    assert policy.estimate("s0") == pytest.approx({"risky": worth("risky", "risky"), "safe": -10.0}, abs=2.5)
    if critic != "convolved":
        check_quantiles(policy, "s0")
    for first in ("risky", "safe"):
        action, memory = policy("s0")
        assert action == "risky"
        memory = policy.override_action(memory, first)
        exact = {second: worth(first, second) for second in ("risky", "safe")}
        # Sums of sixteen quantiles each are coarse: the chance to lose twice is 9/256 there, not 0.04.
        assert policy.estimate("s1", memory) == pytest.approx(exact, abs=7.0 if critic == "convolved" else 2.5)
        if critic != "convolved":
            check_quantiles(policy, "s1", memory)


GRID = rp.RiskyGrid()
FAST = rp.Training(
    learning_starts=60,
    target_update_interval=20,
    batch_size=8,
    num_quantiles=8,
    num_target_quantiles=8,
    num_action_quantiles=8,
)


@pytest.mark.long  # histories that acting sees are compared below
@pytest.mark.parametrize("window", [2, None])
def test_a_rolling_window_is_all_that_a_policy_remembers(window, unchecked):
    network = rp.Network(hidden=(16,), history_size=8, window=window)
    # Warming up is enough: test_host_loop.py and test_checkpoint.py learn with windows.
    steps = FAST.learning_starts
    run = rp.train(rp.TQL(rp.CVaR(0.25), network=network, training=FAST), GRID, steps=steps)
    assert run.steps == steps
    policy = run.policy()

    def after(*actions: str) -> tuple[Any, np.ndarray]:
        memory, state = None, GRID.cell(0, 0)
        for action in actions:
            _, memory = policy(state, memory)
            memory, state = policy.override_action(memory, action), GRID.move(state, action)
        return memory, np.array(list(policy.estimate(state, memory).values()))

    # Three ways to the same cell: the first two part before the latest two states, the third one step later.
    (memory, first), (_, second), (_, third) = (
        after(*path) for path in (("right", "down", "right"), ("down", "right", "right"), ("right", "right", "down"))
    )
    assert memory.agent.observation.shape == (window or 6,)
    assert np.allclose(first, second, atol=1e-4) == (window == 2)
    assert not np.allclose(first, third, atol=1e-4)


@pytest.mark.parametrize(
    ("head", "model"),
    [
        *(("factored", "gru"), ("table", "gru")),
        *(pytest.param("factored", model, marks=pytest.mark.long) for model in ("lstm", "transformer")),
    ],
)
@pytest.mark.parametrize("length", [2, 4])
def test_learning_looks_at_the_histories_that_acting_will_see(length, head, model):
    # An episode of four states and the next one; the window holds its latest `length`.
    obs, before = tokens(NUMBERED, 5)
    step = Transition(
        obs[3],
        before[4],
        jnp.zeros(()),
        obs[4],
        jnp.ones(3, bool),
        jnp.array(False),
        jnp.array(False),
        jnp.int32(3),
        jnp.zeros(()),
        jnp.zeros(()),
    )
    valid = jnp.ones(length, bool)
    critic = HistoryCritic(
        rp.Network(hidden=(8,), history=model, history_size=8, head=head),
        NUMBERED,
        length,
        4,
        3,
        key=jax.random.key(0),
    )
    read, last = eqx.filter_jit(critic.features), eqx.filter_jit(critic.last)
    now, following = read(Window(step, obs[4 - length : 4], before[4 - length : 4], valid))
    np.testing.assert_allclose(now, last(obs[4 - length : 4], before[4 - length : 4], valid), atol=1e-6)
    np.testing.assert_allclose(following, last(obs[5 - length :], before[5 - length :], valid), atol=1e-6)
