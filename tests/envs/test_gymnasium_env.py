"""The library's environments as Gymnasium environments."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import riskpath as rp
from riskpath import envs
from riskpath.envs.finite import finite
from riskpath.envs.gymnasium_env import GymnasiumEnv

from .problems import MASKED, SMALL

IDS = [f"riskpath/{name}-v0" for name in envs.BY_NAME]
WALLED = ("riskpath/AutonomousVehicle-v0", "riskpath/GuardedMaze-v0")
"""Not every action is available at the start, and the checker draws actions without the mask."""
KINDS = ("riskpath/RiskyGrid-v0", "riskpath/RiskyMountainCar-v0", "riskpath/MeanReversionTrading-v0")
"""Of each kind of observation and action one."""
FINITE = ["riskpath/RiskyGrid-v0", "riskpath/ThreeState-v0"]
RIGHT, DOWN = 0, 1


def episode(env: gymnasium.Env, actions: list[int], seed: int | None = None) -> list[Any]:
    """Return everything that the environment returns in one episode."""
    observation, info = env.reset(seed=seed)
    results: list[Any] = [(observation, info["action_mask"].tolist())]
    for action in actions:
        observation, *outcome, info = env.step(action)
        results.append((observation, *outcome, info["action_mask"].tolist()))
    return results


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*infinity")  # cars and queues have no bounds
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in KINDS else pytest.mark.long) for name in IDS if name not in WALLED]
)
def test_gymnasiums_own_checker_passes(name):
    check_env(gymnasium.make(name, **SMALL.get(name, {})).unwrapped)


@pytest.mark.parametrize("name", FINITE)
def test_the_same_seed_gives_the_same_episodes(name):
    env = gymnasium.make(name)
    actions = [0] * 2 if "Three" in name else [DOWN, RIGHT] * 3
    first, second = ([episode(env, actions, seed), *(episode(env, actions) for _ in range(20))] for seed in (7, 7))
    assert first == second
    assert len({str(results) for results in first}) > 1  # a reset without a seed continues the random numbers
    assert [episode(env, actions, seed) for seed in range(20)] != [first[0]] * 20


def test_make_passes_fields_on_and_names_wrong_ones():
    env: Any = gymnasium.make("riskpath/RiskyGrid-v0", forks=5, blue=38.0)
    assert env.observation_space == gymnasium.spaces.Discrete(36)
    assert sum(outcome[1] for outcome in episode(env, [RIGHT, DOWN] * 5, 0)[1:]) == 5 * 38 - 10 * 2
    with pytest.raises(rp.RiskpathError, match=r"RiskyGrid has no field 'fork' \(did you mean forks\?\)"):
        gymnasium.make("riskpath/RiskyGrid-v0", fork=5)


def test_the_action_mask_lists_available_actions_and_others_are_refused():
    env = GymnasiumEnv(finite(MASKED))
    assert env.action_space == gymnasium.spaces.Discrete(3)  # on, out, back
    observation, info = env.reset(seed=0)
    assert (observation, info["action_mask"].tolist(), info["action_mask"].dtype) == (0, [1, 1, 0], np.int8)
    assert {env.action_space.sample(mask=info["action_mask"]) for _ in range(50)} == {0, 1}
    observation, reward, *_, info = env.step(0)
    assert (observation, reward, info["action_mask"].tolist()) == (1, 1.0, [1, 0, 1])
    for action in (1, 3, -1):
        with pytest.raises(rp.RiskpathError, match=f"action {action} is not available here; there are 0, 2"):
            env.step(action)
    info["action_mask"][:] = 1  # the caller may change the array: it is a copy
    with pytest.raises(rp.RiskpathError, match="action 1 is not available"):
        env.step(1)


@pytest.mark.parametrize(
    ("actions", "flags"),
    [([1], [(True, False)]), ([0, 0, 0], [(False, False), (False, False), (False, True)])],
    ids=["terminated", "truncated"],
)
def test_the_end_of_an_episode_is_distinguished_from_a_time_limit(actions, flags):
    env = GymnasiumEnv(finite(MASKED))
    assert [tuple(outcome[2:4]) for outcome in episode(env, actions, 0)[1:]] == flags
    with pytest.raises(rp.RiskpathError, match="the episode is over or has not begun: call reset"):
        env.step(0)
    assert len(episode(env, actions)) == len(actions) + 1


def test_returns_have_the_exact_law(unchecked):
    env = gymnasium.make("riskpath/RiskyGrid-v0")
    law = rp.RiskyGrid().mdp().evaluate(["down", "right", "down", "right", "right", "down"])
    env.reset(seed=1)
    returns = [sum(o[1] for o in episode(env, [DOWN, RIGHT, DOWN, RIGHT, RIGHT, DOWN])[1:]) for _ in range(400)]
    assert len(law.atoms) == 3
    for atom, prob in zip(law.atoms, law.probs, strict=True):
        assert abs(np.mean(np.isclose(returns, atom)) - prob) < 5 * (prob * (1 - prob) / 400) ** 0.5
    assert abs(np.mean(returns) - law.mean) < 5 * law.std / 20


def test_continuous_actions_are_vectors_with_entries_from_minus_one_to_one():
    env = GymnasiumEnv(rp.RiskyMountainCar())
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert info == {}
    observation[:] = 7.0  # the caller may change the array: it is a copy
    following, reward, *_ = env.step(np.ones(1, np.float32))
    assert following in env.observation_space
    assert reward == pytest.approx(-0.1)
    with pytest.raises(rp.RiskpathError, match=r"an action must have 1 entries, got 0\.5"):
        env.step(0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GymnasiumEnv("Chess"), "unknown environment 'Chess'"),
        (
            lambda: GymnasiumEnv(rp.RiskyGrid(), forks=3),
            "give an environment alone or a name with fields, got a RiskyGrid",
        ),
        (lambda: GymnasiumEnv(MASKED), "got a FiniteMDP and {}"),  # pyright: ignore[reportArgumentType]
        (lambda: GymnasiumEnv("RiskyGrid", "human"), "RiskyGrid must be 'rgb_array' or None, got 'human'"),
        (lambda: GymnasiumEnv(finite(MASKED), "rgb_array"), "FiniteEnvironment must be None, got 'rgb_array'"),
        (lambda: GymnasiumEnv("RiskyGrid").step(0), "has not begun: call reset"),
        (lambda: GymnasiumEnv("RiskyGrid").render(), "a picture needs render_mode='rgb_array'"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
