"""Batches of Gymnasium environments: true final observations, time limits, action masks, refusals."""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import riskpath as rp
from riskpath.envs.gymnasium_vector import GymnasiumVector, gymnasium_source, is_gymnasium, require_copies

from .problems import EchoEnv

KEYS = jax.random.split(jax.random.key(0), 2)


def vector_of(*envs: Any) -> GymnasiumVector:
    return GymnasiumVector([gymnasium_source(env) for env in envs], each=1)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("CartPole-v1", True),
        ("riskpath/RiskyGrid-v0", True),
        ("some_module:Own-v0", True),
        ("RiskyGrid", False),
        (EchoEnv, True),
        (EchoEnv(), True),
        (lambda: EchoEnv(), True),
        (SyncVectorEnv([EchoEnv]), True),
        (rp.RiskyGrid, False),
        (rp.RiskyGrid(), False),
        (7, False),
        (None, False),
    ],
)
def test_gymnasium_environments_are_recognised(env, expected):
    assert is_gymnasium(env) == expected


def test_the_true_last_observation_is_kept_and_a_time_limit_does_not_terminate():
    vector = GymnasiumVector([gymnasium_source(lambda: TimeLimit(EchoEnv(length=9), 3))], each=2)
    first, mask = vector.reset(KEYS)
    assert (first.shape, mask.shape) == ((2, 3), (2, 3))
    for i in range(3):
        step = vector.step(np.array([0, 1]), None, None)
        assert (step.truncated == (i == 2)).all()
        assert not step.terminated.any()
        assert (step.observation == step.final_observation).all() == (i < 2)


def test_the_same_keys_give_the_same_first_observations():
    vector = GymnasiumVector([gymnasium_source(EchoEnv)], each=2)
    (first, _), (again, _), (other, _) = (vector.reset(keys) for keys in (KEYS, KEYS, KEYS[::-1]))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, other[::-1])
    assert (first[0] != first[1]).any()


def test_an_environment_that_ends_at_its_time_limit_counts_as_terminated():
    vector = vector_of(lambda: TimeLimit(EchoEnv(length=1), 1))
    vector.reset(KEYS[:1])
    step = vector.step(np.array([0]), None, None)
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_environments_without_a_mask_allow_every_action():
    vector = vector_of(lambda: EchoEnv(length=2, masked=True), lambda: EchoEnv(length=2))
    expected = [[False, True, True], [True, True, True]]
    assert vector.reset(KEYS)[1].tolist() == expected
    for _ in range(2):  # the second step ends both episodes
        step = vector.step(np.array([1, 0]), None, None)
        assert step.action_mask.tolist() == step.final_action_mask.tolist() == expected


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        (lambda: EchoEnv(), None),
        (lambda: TimeLimit(EchoEnv(), 7), 7),
        (lambda: gymnasium.wrappers.OrderEnforcing(TimeLimit(TimeLimit(EchoEnv(), 9), 12)), 9),
        (lambda: TimeLimit(gymnasium.make("CartPole-v1"), 30), 30),
        ("CartPole-v1", 500),
    ],
)
def test_the_time_limit_is_found(env, limit):
    assert gymnasium_source(env).translation.max_episode_steps == limit


def test_a_limit_cuts_episodes_off():
    vector = GymnasiumVector([gymnasium_source(EchoEnv)], each=1, limit=2)
    vector.reset(KEYS[:1])
    assert [bool(vector.step(np.array([0]), None, None).truncated[0]) for _ in range(4)] == [False, True, False, True]


def test_a_users_own_environment_is_used_first_and_stays_open():
    env, closed = EchoEnv(), []
    env.close = lambda: closed.append(True)
    source = gymnasium_source(env)
    vector = GymnasiumVector([source], each=1)
    vector.reset(KEYS[:1])
    vector.step(np.array([0]), None, None)
    assert env.time == 1
    vector.close()
    assert not closed
    with pytest.raises(rp.RiskpathError, match="give a function that makes one"):
        GymnasiumVector([source], each=2)
    with pytest.raises(rp.RiskpathError, match="evaluation needs environments of its own: give env="):
        require_copies([source])
    require_copies([gymnasium_source(EchoEnv), gymnasium_source(gymnasium.make("CartPole-v1"))])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: EchoEnv(spaces.Text(3)), "cannot read observations from Text"),
        (lambda: EchoEnv(action_space=spaces.Text(2)), "cannot act in Text"),
        ("CartPole-v7", "unknown environment 'CartPole-v7'"),
        ("Nothing-v0", "unknown environment 'Nothing-v0'.*if a package registers it, .*: 'package:Nothing-v0'"),
        ("no_such_package:Nothing-v0", "cannot make the environment: ModuleNotFoundError: .*no_such_package"),
        (lambda: 3, "must return a gymnasium.Env, got a int"),
        (lambda: 1 / 0, "cannot make the environment: ZeroDivisionError"),
        (SyncVectorEnv([EchoEnv]), "SAME_STEP"),
        (SyncVectorEnv([EchoEnv] * 3, autoreset_mode=AutoresetMode.SAME_STEP), "has 3 environments"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_in_one_line(env, message):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        vector_of(env)
    assert "\n" not in str(refused.value)


ZEROS = np.zeros(3, np.float32)


def mask(*entries: int) -> dict[str, Any]:
    return {"action_mask": np.array(entries, np.int8)}


def scripted(first: tuple[Any, ...], *steps: tuple[Any, ...], space: Any = None) -> Any:
    """Return a class of environments that return these results of `reset` and, one after the other, of `step`."""

    class Scripted(EchoEnv):
        def __init__(self):
            super().__init__(space)

        def reset(self, *, seed=None, options=None):
            self.results = iter(steps)
            return first

        def step(self, action):
            return next(self.results)

    return Scripted


@pytest.mark.parametrize(
    ("first", "step", "message"),
    [
        ((ZEROS, mask(0, 0, 0)), None, "an action mask must leave at least one action available"),
        ((ZEROS, mask(1, 1, 0)), (ZEROS, 1.0, False, False, {}), "gives an action mask in reset but not in step"),
        (
            (ZEROS, {"action_mask": [1, np.nan, 1]}),
            None,
            r"entries of an action mask must be 0 or 1, got \[1.0, nan, 1.0\]",
        ),
        ((ZEROS, mask(1, 1)), None, r"an action mask has shape \(2,\); there are 3 actions"),
        ((ZEROS * np.nan, {}), None, "an observation of the environment is not a finite number"),
        ((np.zeros(4, np.float32), {}), None, r"an observation has shape \(4,\); the observation space says \(3,\)"),
        (ZEROS, None, "reset must return an observation and a dictionary, got a ndarray"),
        (
            (ZEROS, {}),
            (ZEROS, 1.0, False, False, mask(0, 0, 0)),
            "^an action mask must leave at least one action avail",
        ),
        ((ZEROS, {}), (ZEROS, 1.0, False, False, mask(1, 1, 1, 1)), r"^an action mask has shape \(4,\); there are 3"),
        ((ZEROS, {}), (ZEROS, 1.0, True, False, mask(1, 1)), r"^an action mask has shape \(2,\); there are 3 actions"),
        ((ZEROS, {}), (ZEROS + np.inf, 1.0, False, False, {}), "^an observation of the environment is not a finite"),
        ((ZEROS, {}), (ZEROS * np.nan, 1.0, True, False, {}), "^an observation of the environment is not a finite"),
        ((ZEROS, {}), (ZEROS, np.nan, False, False, {}), "^a reward of the environment is not a finite number: nan"),
        ((ZEROS, {}), (ZEROS, -np.inf, True, False, {}), "^a reward of the environment is not a finite number: -inf"),
        (
            (ZEROS, {}),
            (ZEROS, "much", False, False, {}),
            "the environment failed in step: ValueError: .*; step returns",
        ),
        ((ZEROS, {}), (ZEROS, 1.0, False, {}), "the environment failed in step: ValueError: .*; step returns an obs"),
    ],
)
def test_an_invalid_result_of_an_environment_is_refused_in_one_line(first, step, message):
    def reset_and_step() -> None:
        vector = vector_of(scripted(first, step))
        vector.reset(KEYS[:1])
        vector.step(np.array([1]), None, None)

    with pytest.raises(rp.RiskpathError, match=message) as refused:
        reset_and_step()
    assert "\n" not in str(refused.value)


def test_a_state_number_outside_of_the_space_is_refused():
    with pytest.raises(rp.RiskpathError, match="an observation is outside of its space, which has 3 states"):
        vector_of(scripted((7, {}), space=spaces.Discrete(3)))


@pytest.mark.parametrize("flags", [(True, False), (False, True)], ids=["terminated", "truncated"])
def test_the_mask_of_a_final_observation_may_be_all_zero(flags):
    env = scripted(
        (ZEROS, mask(0, 1, 0)), (ZEROS, 1.0, False, False, mask(1, 0, 0)), (ZEROS, 1.0, *flags, mask(0, 0, 0))
    )
    vector = vector_of(env, lambda: EchoEnv(length=9))
    assert vector.reset(KEYS)[1].tolist() == [[False, True, False], [True, True, True]]
    step = vector.step(np.array([1, 0]), None, None)
    assert step.final_action_mask.tolist() == step.action_mask.tolist() == [[True, False, False], [True, True, True]]
    step = vector.step(np.array([0, 0]), None, None)
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([flags[0], False], [flags[1], False])
    assert step.final_action_mask.tolist() == [[True, True, True], [True, True, True]]
    assert step.action_mask.tolist() == [[False, True, False], [True, True, True]]  # of the new episode


def test_masks_of_continuous_actions_are_ignored():
    env = EchoEnv(action_space=spaces.Box(-1.0, 1.0, (2,), np.float32))
    env._info = lambda: mask(0, 0)
    assert gymnasium_source(env).first_mask.shape == (0,)


def test_a_users_vector_environment_is_stepped_and_stays_open():
    own = SyncVectorEnv([lambda: EchoEnv(masked=True), EchoEnv], autoreset_mode=AutoresetMode.SAME_STEP)
    closed = []
    own.close = lambda **_: closed.append(True)
    source = gymnasium_source(own)
    assert source.first_mask.tolist() == [False, True, True]
    vector = GymnasiumVector([source], each=2)
    assert vector.reset(KEYS)[1].tolist() == [[False, True, True], [True, True, True]]
    assert vector.step(np.array([1, 0]), None, None).reward.tolist() == [1.0, 1.0]
    vector.close()
    assert not closed


def test_the_id_of_a_package_imports_it_first():
    source = gymnasium_source("gymnasium:CartPole-v1")
    assert (source.name, source.translation.spec.num_actions) == ("gymnasium:CartPole-v1", 2)
