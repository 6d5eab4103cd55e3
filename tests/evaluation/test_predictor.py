"""`Predictor.predict` for many environments, compared with the policy called for one environment at a time."""

import dataclasses
import functools
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import riskpath as rp
from riskpath.agents.agent import ActorOutput
from riskpath.envs.finite import finite
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.spaces import Translation
from riskpath.envs.vector import HostEnvironment
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.predictor import Predictor
from tests.evaluation.policies import (
    ACTIONS,
    CAR,
    FEATURES,
    MAZE,
    MAZE_ENV,
    NAMES,
    OBSERVED_ENV,
    PIXELS,
    TINY,
    untrained,
)

pytestmark = pytest.mark.usefixtures("unchecked_module")


def walk(policy: LearnedPolicy, count: int, steps: int) -> dict[str, Any]:
    """Step `count` environments by `predict` and compare every action with that of the policy itself."""
    predictor, envs = Predictor(policy), [GymnasiumEnv(policy.environment) for _ in range(count)]
    finite_problem, continuous = policy.environment is MAZE_ENV, bool(policy.environment.spec.action_size)
    obs = np.array([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    state, starts, memories, rewards = None, np.ones(count, bool), [None] * count, np.zeros(count)
    seen: dict[str, Any] = {"actions": [], "without memory": [], "starts": []}
    for _ in range(steps):
        given = {"rewards": rewards} if predictor.policy.batch.needs_rewards else {}
        actions, state = predictor.predict(obs, state=state, episode_start=starts, deterministic=True, **given)
        assert actions.shape == (count, policy.environment.spec.action_size)[: 1 + continuous]
        seen["actions"].append(actions.copy())
        seen["without memory"].append(predictor.predict(obs)[0])
        seen["starts"].append(starts.copy())
        for i, env in enumerate(envs):
            memory = None if starts[i] else memories[i]
            reward = 0.0 if starts[i] else rewards[i]
            own, memories[i] = policy(NAMES[obs[i]] if finite_problem else obs[i], memory, reward)
            if continuous:
                np.testing.assert_allclose(actions[i], own, atol=1e-5)
            else:
                assert ACTIONS[actions[i]] == own
            obs[i], rewards[i], terminated, truncated, _ = env.step(actions[i])
            starts[i] = terminated | truncated
            if starts[i]:
                obs[i], _ = env.reset()
    return {key: np.array(value) for key, value in seen.items()}


@pytest.mark.parametrize(
    ("agent", "remembers"),
    [
        (rp.Adaptive(rp.CVaR(0.5), network=rp.Network(hidden=(8,))), True),
        pytest.param(rp.IQN(rp.CVaR(0.5), network=TINY), False, marks=pytest.mark.long),
        *(
            pytest.param(agent, True, marks=pytest.mark.long)
            for agent in (
                rp.TQL(rp.CVaR(0.5), network=TINY),
                rp.TQL(rp.CVaR(0.5), network=rp.Network(hidden=(8,), history_size=4, window=2)),
                rp.CVaRDRL(rp.CVaR(0.5), network=TINY),
            )
        ),
    ],
    ids=["Adaptive", "IQN", "TQL", "a window", "CVaRDRL"],
)
def test_predict_equals_the_policy_in_every_environment(agent, remembers, unchecked):
    seen = [walk(untrained(agent, MAZE_ENV, seed), count=4, steps=12) for seed in range(3)]
    starts = np.concatenate([one["starts"] for one in seen])
    assert (starts[1:].any(axis=1) & ~starts[1:].all(axis=1)).any()  # episodes end at different times
    assert len(np.unique([one["actions"] for one in seen])) > 1
    assert any((one["actions"] != one["without memory"]).any() for one in seen) == remembers


@pytest.mark.parametrize(
    ("agent", "remembers"),
    [(rp.TQLContinuous(network=TINY), True), pytest.param(rp.IQTD3(network=TINY), False, marks=pytest.mark.long)],
    ids=["TQLContinuous", "IQTD3"],
)
def test_predict_equals_the_policy_with_continuous_actions(agent, remembers, unchecked):
    seen = walk(untrained(agent, CAR), count=3, steps=10)
    assert seen["actions"].dtype == np.float32
    assert (np.abs(seen["actions"] - seen["without memory"]) > 1e-5).any() == remembers


def test_a_single_observation_gives_a_single_action(unchecked):
    policy = untrained(rp.TQL(rp.CVaR(0.5), network=TINY), MAZE_ENV)
    predictor = Predictor(policy)
    single, many, memory = None, None, None
    for t, number in enumerate((0, 1, 1, 0)):
        starts = t in (0, 2)
        action, single = predictor.predict(number, single, episode_start=starts)
        actions, many = predictor.predict(np.array([number]), many, episode_start=np.array([starts]))
        own, memory = policy(NAMES[number], None if starts else memory)
        assert (action.shape, actions.shape) == ((), (1,))
        assert ACTIONS[action] == ACTIONS[actions[0]] == own
    action, _ = car().predict(np.zeros(2, np.float32))
    assert action.shape == (1,)
    action[:] = 0.0  # the returned array is writable


def test_without_episode_start_the_episodes_continue():
    predictor = Predictor(untrained(rp.TQL(rp.CVaR(0.5), network=TINY), MAZE_ENV))
    _, state = predictor.predict(np.array([0, 1]))
    for starts in (None, np.zeros(2, bool)):
        valid = predictor.predict(np.array([1, 0]), state, starts)[1][2]
        assert valid.sum(axis=1).tolist() == [2, 2]  # observations in the history
    valid = predictor.predict(np.array([1, 0]), state, np.array([False, True]))[1][2]
    assert valid.sum(axis=1).tolist() == [2, 1]


SPACES = {
    "numbers that start at 3 and 5": (spaces.Discrete(4, start=3), spaces.Discrete(3, start=5)),
    "bounds": (spaces.Box(-1.0, 2.0, (2, 2)), spaces.Box(-2.0, np.array([1.0, 5.0], np.float32))),
    "parts": (spaces.Dict({"x": spaces.Box(0.0, 1.0, (2,)), "kind": spaces.Discrete(3)}), spaces.Discrete(3, start=5)),
}


@pytest.mark.parametrize("name", [pytest.param("bounds", marks=pytest.mark.long), *sorted({*SPACES} - {"bounds"})])
def test_observations_and_actions_are_those_of_the_gymnasium_spaces(name, unchecked):
    translation = Translation(*SPACES[name], max_episode_steps=10)
    agent = rp.TQLContinuous(network=TINY) if translation.spec.action_size else rp.TQL(rp.CVaR(0.5), network=TINY)
    policy = untrained(agent, HostEnvironment(translation.spec, translation))
    predictor, row = Predictor(policy), gymnasium.vector.utils.batch_space(translation.observation_space, 3)
    row.seed(0)
    state, single, memories = None, None, [None] * 3
    for _ in range(6):
        obs: Any = row.sample()
        actions, state = predictor.predict(obs, state)
        for i, one in enumerate(gymnasium.vector.utils.iterate(row, obs)):
            own, memories[i] = policy(one, memories[i])
            np.testing.assert_allclose(actions[i], own, atol=1e-5)
            assert own in translation.action_space
            if i == 0:
                action, single = predictor.predict(one, single)
                np.testing.assert_allclose(action, own, atol=1e-5)


def test_action_masks_restrict_the_actions():
    predictor = Predictor(untrained(rp.IQN(rp.CVaR(0.5), network=TINY), MAZE_ENV))
    for action in range(3):
        only = np.arange(3) == action
        assert predictor.predict(0, action_masks=only)[0] == action
        assert predictor.predict(np.array([0, 1]), action_masks=[only, only])[0].tolist() == [action, action]
    ended = predictor.predict(NAMES.index("end"))[0]
    assert ended in (0, 1, 2)


def test_features_are_observations_and_lead_to_the_actions_of_their_state(unchecked):
    policy = untrained(rp.IQN(rp.CVaR(0.5), network=TINY), OBSERVED_ENV)
    predictor = Predictor(policy)
    actions, _ = predictor.predict(np.array([FEATURES["a"], FEATURES["b"]], np.float32))
    assert [ACTIONS[action] for action in actions] == [policy("a")[0], policy("b")[0]]
    for state in ("a", "b"):
        estimates = policy.estimate(state)
        assert list(estimates) == list(MAZE.actions(state))
        assert ACTIONS[predictor.predict(np.array(FEATURES[state]))[0]] == max(estimates, key=estimates.__getitem__)
    with pytest.raises(rp.RiskpathError, match=r"no state has the features \[1.0, 3.0\]: give action masks"):
        predictor.predict(np.array([1.0, 3.0]))
    assert predictor.predict(np.array([1.0, 3.0]), action_masks=[0, 1, 0])[0] == 1
    alike = finite(dataclasses.replace(MAZE, features=dict.fromkeys(NAMES, (1.0,))))
    with pytest.raises(rp.RiskpathError, match=r"states with the features \[1.0\] have different actions: give"):
        Predictor(untrained(rp.IQN(rp.CVaR(0.5), network=TINY), alike)).predict(np.array([1.0]))


class Earned(rp.IQN):
    """An agent whose memory is the sum of its rewards, and nothing else depends on them."""

    def init(self, spec, *, key) -> Any:
        return dataclasses.replace(super().init(spec, key=key), initial_memory=jnp.zeros(()))

    def act(self, state, memory: Any, time_step, *, key, mode) -> Any:
        output = super().act(state, (), time_step, key=key, mode=mode)
        return ActorOutput(output.action, memory + time_step.reward)


@functools.cache
def iqn() -> Predictor:
    return Predictor(untrained(rp.IQN(network=TINY), MAZE_ENV))


@functools.cache
def earned() -> Predictor:
    return Predictor(untrained(Earned(network=TINY), MAZE_ENV))


def test_rewards_reach_the_memory_unless_an_episode_begins():
    _, first = earned().predict(0)
    _, second = earned().predict(0, first, rewards=3.0)
    _, third = earned().predict(0, second, rewards=2.0)
    _, again = earned().predict(0, second, True, rewards=2.0)
    assert [float(state[0][0]) for state in (first, second, third, again)] == [0.0, 3.0, 5.0, 0.0]


@functools.cache
def car() -> Predictor:
    return Predictor(untrained(rp.IQTD3(network=TINY), CAR))


@functools.cache
def pixels() -> Predictor:
    return Predictor(untrained(rp.IQN(network=TINY), PIXELS))


@functools.cache
def tql() -> Predictor:
    return Predictor(untrained(rp.TQL(network=TINY), MAZE_ENV))


TEXT: Any = "state"
PAIR: Any = (1, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: earned().predict(0, earned().predict(0)[1]),
            r"^Earned acts on the rewards it received: give rewards=…, one for each environment$",
        ),
        (
            lambda: earned().policy("a", earned().policy("a")[1]),
            r"^Earned acts on the rewards it received: give reward=…, that of the previous step$",
        ),
        (
            lambda: earned().policy.compiled()("a", earned().policy.compiled()("a")[1]),
            r"^Earned acts on the rewards it received: give reward=…, that of the previous step$",
        ),
        (lambda: earned().predict(np.array([0, 1]), rewards=[1.0]), r"^rewards have shape \(1,\), but there are 2 env"),
        (lambda: earned().predict(0, rewards="much"), r"^a reward must consist of numbers, got 'much'$"),
        (lambda: iqn().predict(3), r"states have numbers from 0 to 2, got \[3\]$"),
        (lambda: iqn().predict(np.array([0, -1])), r"states have numbers from 0 to 2, got \[0, -1\]$"),
        (lambda: iqn().predict(np.zeros((2, 1), int)), r"must have shape \(\), .* got a ndarray of shape \(2, 1\)$"),
        (lambda: iqn().predict(np.zeros(0, int)), r"must have shape \(\), .* got a ndarray of shape \(0,\)$"),
        (lambda: iqn().predict({"obs": 0}), r"an observation must consist of numbers, got {'obs': 0}$"),
        (lambda: iqn().predict([[0], [1, 2]]), r"an observation must consist of numbers, got \[\[0\], \[1, 2\]\]$"),
        (lambda: iqn().predict(0.5), r"states have numbers from 0 to 2, got \[0.5\]$"),
        (lambda: iqn().predict(np.nan), r"an observation must consist of finite numbers, got nan$"),
        (lambda: car().predict(np.array([[0.0, 0.0], [0.0, np.inf]])), r"must consist of finite numbers, got inf$"),
        (lambda: pixels().predict(np.full((8, 8), np.nan)), r"must consist of finite numbers, got nan$"),
        (
            lambda: car().predict(np.zeros(3)),
            r"an observation must have shape \(2,\), or one axis more for several environments; got a ndarray",
        ),
        (
            lambda: iqn().predict(np.array([0, 1]), episode_start=np.ones(3, bool)),
            r"episode starts are of 3 environments, the observation of 2$",
        ),
        (
            lambda: tql().predict(np.array([0, 1]), tql().predict(0)[1]),
            r"memories are of 1 environments, the observation of 2$",
        ),
        (
            lambda: tql().predict(0, tql().predict(np.array([0, 1]))[1]),
            r"memories are of 2 environments, the",
        ),
        (lambda: tql().predict(0, iqn().predict(0)[1]), r"memories were returned by another policy"),
        (lambda: tql().predict(0, TEXT), r"memories must be None or those that were returned, got a str$"),
        (lambda: tql().predict(0, PAIR), r"memories must be None or those that were returned, got a tuple$"),
        (lambda: iqn().predict(0, action_masks=[True, True]), r"an action mask must have shape \(1, 3\), got \(2,\)$"),
        (
            lambda: iqn().predict(np.array([0, 1]), action_masks=[[1, 0, 0], [0, 0, 0]]),
            r"an action mask must leave at least one action available, but it is all zero$",
        ),
    ],
)
def test_a_wrong_call_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
