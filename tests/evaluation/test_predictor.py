"""`predict` for many environments against the policy itself, called for one at a time."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import riskpath as rp
from riskpath.envs.environment import Environment
from riskpath.envs.finite import action_numbers, finite, state_numbers
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.spaces import Translation
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.predictor import Predictor
from riskpath.training.host_loop import Outside

# Episodes of one to five steps; the second action of "a" has no counterpart in "b", which has a third one.
MAZE = rp.FiniteMDP.from_outcomes(
    {
        ("a", "on"): [(0.7, 1.0, "b"), (0.3, 0.0, "a")],
        ("a", "out"): [(0.4, 5.0, "end"), (0.6, 2.0, "b")],
        ("b", "on"): [(0.6, 2.0, "a"), (0.4, 0.0, "b")],
        ("b", "back"): [(0.5, 3.0, "a"), (0.3, 4.0, "b"), (0.2, 0.0, "end")],
    },
    "a",
    horizon=5,
)
NAMES, ACTIONS = list(state_numbers(MAZE)), list(action_numbers(MAZE))
MAZE_ENV, CAR = finite(MAZE), rp.RiskyMountainCar(0.5, max_episode_steps=7)
TINY = rp.Network(hidden=(8,), history_size=4)


def untrained(agent: rp.Agent, world: Environment, seed: int = 0) -> LearnedPolicy:
    """Whatever it does at first, with larger weights: what it remembers then shows in what it does."""
    critic = agent.init(world.spec, key=jax.random.key(seed))
    large = jax.tree.map(lambda x: 4.0 * x if eqx.is_inexact_array(x) else x, critic.params)
    return LearnedPolicy(agent, eqx.tree_at(lambda state: state.params, critic, large), world)


def walk(policy: LearnedPolicy, count: int, steps: int) -> dict[str, Any]:
    """Steps of `count` environments by `predict`, each compared with the policy itself."""
    predictor, envs = Predictor(policy), [GymnasiumEnv(policy.world) for _ in range(count)]
    finite_problem, continuous = policy.world is MAZE_ENV, bool(policy.world.spec.action_size)
    obs = np.array([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    state, starts, memories = None, np.ones(count, bool), [None] * count
    seen: dict[str, Any] = {"actions": [], "without memory": [], "starts": []}
    for _ in range(steps):
        actions, state = predictor.predict(obs, state=state, episode_start=starts, deterministic=True)
        assert actions.shape == (count, policy.world.spec.action_size)[: 1 + continuous]
        seen["actions"].append(actions.copy())
        seen["without memory"].append(predictor.predict(obs)[0])
        seen["starts"].append(starts.copy())
        for i, env in enumerate(envs):
            memory = None if starts[i] else memories[i]
            own, memories[i] = policy(NAMES[obs[i]] if finite_problem else obs[i], memory)
            if continuous:
                np.testing.assert_allclose(actions[i], own, atol=1e-5)
            else:
                assert ACTIONS[actions[i]] == own
            obs[i], _, terminated, truncated, _ = env.step(actions[i])
            starts[i] = terminated | truncated
            if starts[i]:
                obs[i], _ = env.reset()
    return {key: np.array(value) for key, value in seen.items()}


@pytest.mark.parametrize(
    ("agent", "remembers"),
    [
        (rp.IQN(rp.CVaR(0.5), network=TINY), False),
        (rp.TQL(rp.CVaR(0.5), network=TINY), True),
        (rp.TQL(rp.CVaR(0.5), network=rp.Network(hidden=(8,), history_size=4, history="lstm", window=2)), True),
    ],
    ids=["IQN", "TQL", "a window"],
)
def test_many_environments_at_once_are_each_as_if_alone(agent, remembers, unchecked):
    seen = [walk(untrained(agent, MAZE_ENV, seed), count=4, steps=12) for seed in range(3)]
    starts = np.concatenate([one["starts"] for one in seen])
    assert (starts[1:].any(axis=1) & ~starts[1:].all(axis=1)).any()  # episodes end at different times
    assert len(np.unique([one["actions"] for one in seen])) > 1
    assert any((one["actions"] != one["without memory"]).any() for one in seen) == remembers


@pytest.mark.parametrize(
    ("agent", "remembers"),
    [(rp.IQTD3(network=TINY), False), (rp.TQLContinuous(network=TINY), True)],
    ids=["IQTD3", "TQL"],
)
def test_vector_actions(agent, remembers, unchecked):
    seen = walk(untrained(agent, CAR), count=3, steps=10)
    assert seen["actions"].dtype == np.float32
    assert (np.abs(seen["actions"] - seen["without memory"]) > 1e-5).any() == remembers


def test_one_observation_is_one_environment(unchecked):
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
    car = Predictor(untrained(rp.IQTD3(network=TINY), CAR))
    action, _ = car.predict(np.zeros(2, np.float32))
    assert action.shape == (1,)
    action[:] = 0.0  # a user's array is the user's


def test_no_word_of_a_start_means_the_episode_goes_on():
    predictor = Predictor(untrained(rp.TQL(rp.CVaR(0.5), network=TINY), MAZE_ENV))
    _, state = predictor.predict(np.array([0, 1]))
    for told in (None, np.zeros(2, bool)):
        valid = predictor.predict(np.array([1, 0]), state, told)[1][2]
        assert valid.sum(axis=1).tolist() == [2, 2]  # tokens of history
    valid = predictor.predict(np.array([1, 0]), state, np.array([False, True]))[1][2]
    assert valid.sum(axis=1).tolist() == [2, 1]


SPACES = {
    "numbers that do not start at 0": (spaces.Discrete(4, start=3), spaces.Discrete(3, start=5)),
    "bounds": (spaces.Box(-1.0, 2.0, (2, 2)), spaces.Box(-2.0, np.array([1.0, 5.0], np.float32))),
    "parts": (spaces.Dict({"x": spaces.Box(0.0, 1.0, (2,)), "kind": spaces.Discrete(3)}), spaces.Discrete(3, start=5)),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_gymnasium_environment_is_spoken_to_in_its_own_words(name, unchecked):
    told = Translation(*SPACES[name], max_episode_steps=10)
    agent = rp.TQLContinuous(network=TINY) if told.spec.action_size else rp.TQL(rp.CVaR(0.5), network=TINY)
    policy = untrained(agent, Outside(told.spec, told))
    predictor, row = Predictor(policy), gymnasium.vector.utils.batch_space(told.observation_space, 3)
    row.seed(0)
    state, single, memories = None, None, [None] * 3
    for _ in range(6):
        obs: Any = row.sample()
        actions, state = predictor.predict(obs, state)
        for i, one in enumerate(gymnasium.vector.utils.iterate(row, obs)):
            own, memories[i] = policy(one, memories[i])
            np.testing.assert_allclose(actions[i], own, atol=1e-5)
            assert own in told.action_space
            if i == 0:
                action, single = predictor.predict(one, single)
                np.testing.assert_allclose(action, own, atol=1e-5)


def test_masks_come_from_the_problem_unless_told():
    predictor = Predictor(untrained(rp.IQN(rp.CVaR(0.5), network=TINY), MAZE_ENV))
    for action in range(3):
        only = np.arange(3) == action
        assert predictor.predict(0, action_masks=only)[0] == action
        assert predictor.predict(np.array([0, 1]), action_masks=[only, only])[0].tolist() == [action, action]
    ended = predictor.predict(NAMES.index("end"))[0]
    assert ended in (0, 1, 2)


class Earned(rp.IQN):
    """An agent of a user's own that keeps account of what it earned, and of nothing else."""

    def reset(self, state, spec) -> Any:
        return jax.numpy.zeros(())

    def act(self, state, memory: Any, percept, *, key, explore) -> Any:
        action, _ = super().act(state, None, percept, key=key, explore=explore)
        return action, memory + percept.reward


def iqn() -> Predictor:
    return Predictor(untrained(rp.IQN(network=TINY), MAZE_ENV))


def tql() -> Predictor:
    return Predictor(untrained(rp.TQL(network=TINY), MAZE_ENV))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Predictor(untrained(rp.CVaRDRL(network=TINY), MAZE_ENV)),
            r"CVaRDRL acts on the rewards it got, which predict is not told; call the policy itself: "
            r"action, memory = policy\(state, memory, reward\)$",
        ),
        (lambda: Predictor(untrained(Earned(network=TINY), MAZE_ENV)), r"^Earned acts on the rewards it got"),
        (lambda: iqn().predict(3), r"states have numbers from 0 to 2, got \[3\]$"),
        (lambda: iqn().predict(np.array([0, -1])), r"states have numbers from 0 to 2, got \[0, -1\]$"),
        (lambda: iqn().predict(np.zeros((2, 1), int)), r"must have shape \(\), .* got a ndarray of shape \(2, 1\)$"),
        (lambda: iqn().predict(np.zeros(0, int)), r"must have shape \(\), .* got a ndarray of shape \(0,\)$"),
        (lambda: iqn().predict({"obs": 0}), r"an observation must have shape \(\), .* got a dict of shape \(\)$"),
        (
            lambda: Predictor(untrained(rp.IQTD3(network=TINY), CAR)).predict(np.zeros(3)),
            r"an observation must have shape \(2,\), or one axis more for several environments; got a ndarray",
        ),
        (
            lambda: iqn().predict(np.array([0, 1]), episode_start=np.ones(3, bool)),
            r"episode_start is of 3 environments, the observation of 2$",
        ),
        (
            lambda: tql().predict(np.array([0, 1]), tql().predict(0)[1]),
            r"state is of 1 environments, the observation of 2$",
        ),
        (lambda: iqn().predict(0, action_masks=[True, True]), r"action_masks must have shape \(1, 3\), got \(2,\)$"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
