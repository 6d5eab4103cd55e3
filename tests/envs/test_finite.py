"""Finite problems as environments: tables, numbering, masks and limits."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import (
    FiniteEnvironment,
    action_numbers,
    as_arrays,
    as_finite,
    finite,
    pad_alike,
    state_numbers,
    tabulate,
)

from .problems import FEATURES, MASKED, OBSERVED

KEYS = jax.random.split(jax.random.key(0), 4000)
RANDOM_START = rp.FiniteMDP.from_outcomes(
    {("a", "go"): [(1.0, 1.0, "end")], ("b", "go"): [(1.0, 2.0, "end")]}, {"a": 0.3, "b": 0.7}
)


@eqx.filter_jit
def step(env, key, state, action):
    return env.step(key, state, action)


def step_many(env, keys, state, action):
    """Return the results of one step from one state with many keys."""
    return jax.device_get(_step_many(env, keys, state, action))


@eqx.filter_jit
def _step_many(env, keys, state, action):
    return jax.vmap(env.step, (0, None, None))(keys, state, action)


@eqx.filter_jit
def step_each(env, keys, states, actions):
    return jax.vmap(env.step)(keys, states, actions)


@eqx.filter_jit
def reset_many(env, keys):
    return jax.vmap(env.reset)(keys)


def test_states_and_actions_are_numbered_in_order_of_first_appearance():
    assert state_numbers(MASKED) == {"a": 0, "b": 1, "end": 2}
    assert action_numbers(MASKED) == {"on": 0, "out": 1, "back": 2}


def test_states_that_no_episode_reaches_have_no_number():
    chain = {("s0", "go"): [(1.0, 0.0, "s1")], ("s1", "go"): [(1.0, 0.0, "s2")], ("s2", "go"): [(1.0, 0.0, "s0")]}
    assert state_numbers(rp.FiniteMDP.from_outcomes(chain, "s0", horizon=2)) == {"s0": 0, "s1": 1, "s2": 2}
    assert state_numbers(rp.FiniteMDP.from_outcomes(chain, "s0", horizon=1)) == {"s0": 0, "s1": 1}


def test_a_state_reached_at_the_horizon_truncates_although_its_next_states_have_no_number():
    chain = {("s0", "go"): [(1.0, 0.0, "s1")], ("s1", "go"): [(1.0, 0.0, "s2")], ("s2", "go"): [(1.0, 0.0, "s0")]}
    env = finite(rp.FiniteMDP.from_outcomes(chain, "s0", horizon=1))
    following, _, _, terminated, truncated = step(env, KEYS[0], (jnp.int32(0), jnp.int32(0)), jnp.int32(0))
    assert (int(following), bool(terminated), bool(truncated)) == (1, False, True)


def test_outcomes_are_drawn_with_their_probabilities():
    env = finite(MASKED)
    state = (jnp.int32(1), jnp.int32(0))
    following, _, reward, terminated, truncated = step_many(env, KEYS, state, jnp.int32(2))
    assert sorted({*zip(following.tolist(), reward.tolist(), strict=True)}) == [(0, 3.0), (1, 4.0)]
    assert abs((reward == 3.0).mean() - 0.5) < 5 * 0.5 / len(KEYS) ** 0.5
    assert not (terminated | truncated).any()


def test_start_states_are_drawn_with_their_probabilities():
    observation, (number, elapsed) = jax.device_get(jax.jit(jax.vmap(finite(RANDOM_START).reset))(KEYS))
    assert (observation == number).all()
    assert (elapsed == 0).all()
    assert abs(float((number == 0).mean()) - 0.3) < 5 * 0.46 / len(KEYS) ** 0.5


@pytest.mark.parametrize(
    ("number", "elapsed", "action", "flags"),
    [(0, 0, 0, (False, False)), (0, 0, 1, (True, False)), (1, 2, 0, (False, True)), (0, 2, 1, (True, False))],
    ids=["goes on", "terminal state", "horizon", "both"],
)
def test_a_terminal_state_terminates_and_the_horizon_truncates(number, elapsed, action, flags):
    state = (jnp.int32(number), jnp.int32(elapsed))
    _, (_, following), _, terminated, truncated = step(finite(MASKED), KEYS[0], state, jnp.int32(action))
    assert (bool(terminated), bool(truncated)) == flags
    assert following == elapsed + 1


def test_the_action_mask_allows_every_action_in_a_terminal_state():
    mask = jax.jit(lambda number: finite(MASKED).action_mask((number, number)))
    masks = [mask(jnp.int32(number)).tolist() for number in range(3)]
    assert masks == [[True, True, False], [True, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("mdp", "steps", "deterministic"),
    [
        (MASKED, 3, False),
        (RANDOM_START, 1, False),
        (rp.ThreeState().mdp(), 2, True),
        (rp.RiskyGrid(forks=4).mdp(), 8, True),
    ],
    ids=["random transitions", "random start", "ThreeState", "RiskyGrid"],
)
def test_the_specification_has_the_length_of_episodes_and_whether_actions_determine_states(mdp, steps, deterministic):
    spec = finite(mdp).spec
    assert (spec.max_episode_steps, spec.deterministic) == (steps, deterministic)
    assert (spec.num_states, spec.num_actions) == (len(state_numbers(mdp)), len(action_numbers(mdp)))


@pytest.mark.parametrize(
    ("outcomes", "horizon", "steps"),
    [
        ({("a", "go"): [(1.0, 0.0, "b")], ("b", "go"): [(1.0, 0.0, "a")]}, 10**6, 10**6),
        ({("a", "go"): [(1.0, 0.0, "b")], ("b", "go"): [(1.0, 0.0, "a")]}, 1, 1),
        ({("a", "go"): [(1.0, 0.0, "b")], ("b", "go"): [(1.0, 0.0, "end")]}, 10**6, 2),
        ({("a", "go"): [(1.0, 0.0, "end")], ("b", "go"): [(1.0, 0.0, "b")]}, 10**6, 1),
        ({("a", "go"): [(0.5, 0.0, "a"), (0.5, 0.0, "end")]}, 7, 7),
        ({("a", "go"): [(1.0, 0.0, "b")], ("a", "end"): [(1.0, 0.0, "c")], ("b", "go"): [(1.0, 0.0, "c")]}, None, 2),
    ],
    ids=["loop", "short horizon", "no loop", "unreachable loop", "loop of one state", "two lengths"],
)
def test_the_longest_episode_is_found_without_walking_to_the_horizon(outcomes, horizon, steps):
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "a", horizon=horizon)
    before = time.process_time()
    assert mdp.max_episode_steps == tabulate(mdp).max_episode_steps == steps
    assert time.process_time() - before < 1  # whatever else the machine does
    if (mdp.horizon or 0) < 100:
        assert len(mdp.layers) == steps


def test_features_are_observed_instead_of_state_numbers():
    env, plain = finite(OBSERVED), finite(MASKED)
    assert env.spec.observation_shape == (3,)
    assert env.spec.num_states is None
    assert env.spec.observation_bounds == ((0.0, 1.0), (-2.0, 2.0), (6.0, 8.0))  # the last feature is constant
    assert env.spec.observation_dtype == jnp.float32
    observation, state = env.reset(KEYS[0])
    assert observation.tolist() == list(FEATURES["a"])
    assert observation.dtype == jnp.float32
    for key, action in zip(KEYS[:3], (0, 2, 0), strict=True):
        number, plain_state, *rest = step(plain, key, state, jnp.int32(action))
        observation, state, *outcome = step(env, key, state, jnp.int32(action))
        assert observation.tolist() == list(FEATURES[list(FEATURES)[int(number)]])
        assert (state, outcome) == (plain_state, rest)


@pytest.mark.parametrize(
    "name", ["BettingGame", "GamblersRuin", "Inventory", "Liquidation", "RandomMDP", "RiverSwim", "WindyCliff"]
)
def test_features_of_the_problems_of_the_suite_lie_between_minus_one_and_one(name, unchecked):
    env = as_finite(rp.make(name, **({"rounds": 3} if name == "BettingGame" else {})))
    bounds = env.spec.observation_bounds
    assert bounds is not None
    assert all(-1 <= low < high <= 1 for low, high in bounds)
    features = np.asarray(env.tables.features)
    assert len(np.unique(features, axis=0)) == len(features)  # a state can be told from its features


def test_padding_of_outcomes_is_never_drawn():
    tables = tabulate(MASKED)
    assert np.asarray(tables.cumulative[0, 0]).tolist() == [1.0, 1.0]  # one outcome, padded to two
    env = finite(MASKED)
    state = (jnp.int32(0), jnp.int32(0))
    assert (step_many(env, KEYS, state, jnp.int32(0))[2] == 1.0).all()


def test_a_problem_family_is_tabulated_once():
    assert as_finite(rp.RiskyGrid(forks=2)) is as_finite(rp.RiskyGrid(forks=2))
    assert as_finite(rp.RiskyGrid(forks=2)) is not as_finite(rp.RiskyGrid(forks=2, blue=1.0))


def test_the_discount_of_the_problem_can_be_changed():
    assert finite(MASKED).mdp(0.5).discount == rp.RiskyGrid().mdp(0.5).discount == 0.5


@pytest.mark.parametrize("env", [rp.RiskyGrid(), finite(MASKED), finite(OBSERVED), as_finite(rp.ThreeState())])
def test_as_arrays_keeps_only_the_tables_of_a_finite_problem(env: Any):
    arrays = as_arrays(env)
    assert isinstance(arrays, FiniteEnvironment)
    assert arrays.problem is None
    assert arrays.spec == env.spec


def test_as_arrays_turns_floats_into_arrays_and_keeps_other_fields():
    env: Any = as_arrays(rp.RiskyMountainCar(c=0.5, max_episode_steps=7))
    assert (env.c.dtype, float(env.c), env.max_episode_steps) == (jnp.float32, 0.5, 7)


def test_problems_with_other_numbers_of_states_are_padded_alike():
    alone = [as_finite(rp.RandomMDP(seed=seed, depth=6)) for seed in (1, 13)]
    assert [len(env.tables.start) for env in alone] == [17, 16]
    padded = pad_alike(alone)
    assert [env.tables.reward.shape for env in padded] == [(17, 2, 3)] * 2
    for before, after in zip(alone, padded, strict=True):
        assert before.spec == after.spec
        keys, numbers = jax.random.split(jax.random.key(0), 30), np.arange(30, dtype=np.int32)
        assert_same(*(reset_many(env, keys) for env in (before, after)))
        assert_same(*(step_each(env, keys, (numbers % 16, numbers % 5), numbers % 2) for env in (before, after)))


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_digest_tells_problems_with_different_numbers_apart():
    def table(gain: float, name: str = "FiniteMDP") -> rp.FiniteMDP:
        return rp.FiniteMDP.from_outcomes({(0, "go"): [(1.0, gain, 1)]}, start=0, name=name)

    one, other, same = (finite(problem).digest for problem in (table(1.0), table(2.0), table(1.0, "mine")))
    assert one == same != other
