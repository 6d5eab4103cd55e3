"""Learned policies as functions: the inputs they refuse, their memory, and how often they are compiled."""

import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.environment import Environment
from riskpath.envs.vector import HostEnvironment
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.types import TimeStep
from tests.evaluation.policies import ACTIONS, BOXES, CAR, MAZE_ENV, NAMES, NUMBERS, PIXELS, TINY, untrained


def cached(agent: rp.Agent, env: Environment) -> Any:
    """Return a function that makes an untrained policy once; typed loosely, as it receives wrong inputs."""
    return functools.cache(lambda: untrained(agent, env))


maze = cached(rp.TQL(rp.CVaR(0.5), network=TINY), MAZE_ENV)
memoryless = cached(rp.IQN(rp.CVaR(0.5), network=TINY), MAZE_ENV)
car = cached(rp.IQTD3(network=TINY), CAR)
numbers = cached(rp.TQL(network=TINY), NUMBERS)
boxes = cached(rp.TQLContinuous(network=TINY), BOXES)
pixels = cached(rp.IQN(network=TINY), PIXELS)

ZEROS = np.zeros(2)
REWARD = r"^a reward must be a finite number, got "
FOREIGN = r"^memory was returned by another policy: start an episode with memory=None$"
WRONG = {
    "NaN observation": (lambda: car()([np.nan, 0.0]), r"^an observation must consist of finite numbers, got nan$"),
    "infinite observation": (lambda: car()([0.0, -np.inf]), r"^an observation must .* finite numbers, got -inf$"),
    "beyond float32": (lambda: car()([0.0, 1e300]), r"^an observation must consist of finite numbers, got 1e\+300$"),
    "NaN pixels": (lambda: pixels()(np.full((8, 8), np.nan)), r"^an observation must .* finite numbers, got nan$"),
    "NaN in a Box": (lambda: boxes()([np.nan, 0.0]), r"^an observation must consist of finite numbers, got nan$"),
    "NaN for a number": (lambda: numbers()(np.nan), r"^an observation must consist of finite numbers, got nan$"),
    "unknown number": (lambda: numbers()(2), r"^an observation must be one of Discrete\(4, start=3\), got 2$"),
    "shape": (lambda: car()(np.zeros(3)), r"^an observation must have shape \(2,\), got \(3,\)$"),
    "text": (lambda: car()("ab"), r"^an observation must consist of numbers, got 'ab'$"),
    "None": (lambda: car()(None), r"^an observation must consist of numbers, got None$"),
    "ragged": (lambda: car()([[1.0], [1.0, 2.0]]), r"^an observation must consist of numbers, got \[\[1.0\], \[1.0, 2"),
    "unknown state": (lambda: maze()("c"), r"^the problem has no state 'c'; it has 'a', 'b', 'end'$"),
    "NaN state": (lambda: maze()(np.nan), r"^the problem has no state nan; it has 'a', 'b', 'end'$"),
    "state that is no name": (lambda: maze()(["a"]), r"^the problem has no state \['a'\]; it has"),
    "NaN reward": (lambda: maze()("a", None, np.nan), REWARD + "nan$"),
    "infinite reward": (lambda: maze()("a", None, np.float32(np.inf)), REWARD + r"np.float32\(inf\)$"),
    "reward beyond float32": (lambda: maze()("a", None, 1e39), REWARD + r"1e\+39$"),
    "text as reward": (lambda: maze()("a", reward="1"), REWARD + "'1'$"),
    "two rewards": (lambda: maze()("a", reward=np.zeros(2)), REWARD + r"array\(\[0., 0.\]\)$"),
    "reward of an estimate": (lambda: maze().estimate("a", None, np.nan), REWARD + "nan$"),
    "reward of quantiles": (lambda: maze().quantiles("a", None, np.nan), REWARD + "nan$"),
    "mask of zeros": (lambda: maze()("a", mask=[0, 0, 0]), r"^an action mask must leave at least one action available"),
    "short mask": (lambda: maze()("a", mask=[1, 1]), r"^an action mask must have shape \(3,\), got \(2,\)$"),
    "mask of numbers": (lambda: maze()("a", mask=[1, 2, 0]), r"^an action mask must consist of 0 and 1, got \[1, 2, 0"),
    "mask of texts": (lambda: maze()("a", mask=["on"]), r"^an action mask must consist of numbers, got \['on'\]$"),
    "mask of vectors": (lambda: car()(ZEROS, mask=[1]), r"^an action mask must have shape \(0,\), got \(1,\)$"),
    "dictionary as memory": (lambda: maze()("a", {}), r"^memory must be None or the memory .* returned, got a dict$"),
    "0 as memory": (lambda: maze().estimate("a", 0), r"^memory must be None or the memory .* returned, got a int$"),
    "tuple as memory": (lambda: maze().quantiles("a", ()), r"^memory must be None or .* returned, got a tuple$"),
    "foreign memory": (lambda: maze()("b", memoryless()("a")[1]), FOREIGN),
    "foreign memory, other shape": (lambda: boxes()(ZEROS, numbers()(3)[1]), FOREIGN),
    "foreign memory to override": (lambda: maze().override_action(memoryless()("a")[1], "on"), FOREIGN),
    "no memory to override": (lambda: maze().override_action(None, "on"), r"^memory must be None or .* a NoneType$"),
    "unknown action": (
        lambda: maze().override_action(maze()("a")[1], "up"),
        r"^the problem has no action 'up'; it has 'on', 'out', 'back'$",
    ),
    "unknown number of an action": (
        lambda: pixels().override_action(pixels()(np.zeros((8, 8)))[1], 2),
        r"^actions have numbers from 0 to 1, got 2$",
    ),
    "half an action": (
        lambda: pixels().override_action(pixels()(np.zeros((8, 8)))[1], 0.5),
        r"^actions have numbers from 0 to 1, got 0.5$",
    ),
    "NaN action": (
        lambda: car().override_action(car()(ZEROS)[1], [np.nan]),
        r"^an action must consist of finite numbers, got nan$",
    ),
    "length of an action": (
        lambda: car().override_action(car()(ZEROS)[1], [0.0, 0.0]),
        r"^an action must have shape \(1,\), got \(2,\)$",
    ),
    "shape of a Box action": (
        lambda: boxes().override_action(boxes()(ZEROS)[1], 0.0),
        r"^an action must have shape \(2,\), got \(\)$",
    ),
    "no quantiles": (lambda: maze().quantiles("a", count=0), r"^count must be at least 1, got 0$"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.ones(()), jnp.ones(())])
def test_every_kind_of_number_is_a_reward(reward, unchecked):
    assert maze().estimate("b", maze()("a")[1], reward) == maze().estimate("b", maze()("a")[1], 1.0)


@pytest.mark.parametrize("kind", [bool, np.int8, float])
def test_a_mask_restricts_the_action_and_the_estimates(kind, unchecked):
    policy = untrained(rp.IQN(network=TINY), HostEnvironment(rp.EnvSpec(2, (2,))))
    for action in range(2):
        mask = (np.arange(2) == action).astype(kind)
        assert policy(ZEROS, mask=mask)[0] == action
        assert list(policy.estimate(ZEROS, mask=mask)) == list(policy.quantiles(ZEROS, mask=mask)) == [action]
    assert list(policy.estimate(ZEROS)) == [0, 1]


class Counted(rp.IQN):
    """An agent that counts how often its quantiles are traced."""

    traces: ClassVar[list[int]] = []

    def quantiles(self, state, memory, time_step, taus) -> Any:
        self.traces.append(len(taus))
        return super().quantiles(state, memory, time_step, taus)


def test_estimates_and_quantiles_are_compiled_once(unchecked):
    agent = Counted(rp.CVaR(0.5), network=TINY, training=rp.Training(num_action_quantiles=16))
    policy = untrained(agent, MAZE_ENV)
    first = policy.estimate("a")
    _, memory = policy("a")
    assert Counted.traces == [16]
    for other in (policy, untrained(agent, MAZE_ENV, seed=1)):  # other weights, other inputs, the same program
        assert other.estimate("b", memory, 2.0) != first
    assert Counted.traces == [16]
    for state in ("a", "b", "a"):
        policy.quantiles(state)
    assert Counted.traces == [16, 100]
    assert policy.quantiles("b", memory, count=7)["on"].shape == (7,)
    assert Counted.traces == [16, 100, 7]


def estimates_by_hand(policy: LearnedPolicy, state: str, memory: Any, action: str) -> dict[str, float]:
    """Return estimates in a state to which another action led, from the agent itself."""
    available = MAZE_ENV.tables.available[NAMES.index(state)]
    number = jnp.asarray(ACTIONS.index(action), jnp.int32)
    time_step = TimeStep(jnp.asarray(NAMES.index(state), jnp.int32), jnp.ones(()), available, number, memory.time)
    agent: Any = policy.agent
    values = agent.estimate(policy.state, memory.agent, time_step)
    return {ACTIONS[i]: float(values[i]) for i in np.flatnonzero(available)}


def test_override_action_replaces_the_previous_action(unchecked):
    policy = maze()
    own, memory = policy("a")
    assert policy.estimate("b", policy.override_action(memory, own), 1.0) == policy.estimate("b", memory, 1.0)
    for other in {"on", "out"} - {own}:
        changed = policy.override_action(memory, other)
        assert changed.time == memory.time == 1
        assert policy.estimate("b", changed, 1.0) != policy.estimate("b", memory, 1.0)
        assert policy.estimate("b", changed, 1.0) == pytest.approx(
            estimates_by_hand(policy, "b", memory, other), rel=1e-4
        )


def test_override_action_reads_actions_of_gymnasium_spaces(unchecked):
    _, memory = numbers()(4)
    assert [int(numbers().override_action(memory, action).prev_action) for action in (5, 7)] == [0, 2]
    action, memory = boxes()(ZEROS)
    np.testing.assert_allclose(boxes().override_action(memory, action).prev_action, memory.prev_action, atol=1e-5)
    corner = boxes().override_action(memory, np.array([-2.0, 5.0])).prev_action
    np.testing.assert_allclose(corner, [-1.0, 1.0])
