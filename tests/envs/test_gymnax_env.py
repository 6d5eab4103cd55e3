"""gymnax environments as environments of this library, checked on small ones with gymnax's methods."""

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import as_arrays
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.gymnax_env import from_gymnax
from riskpath.types import EnvSpec

LEFT, RIGHT = jnp.asarray(0, jnp.int32), jnp.asarray(1, jnp.int32)


class Params(eqx.Module):
    """Parameters as Python numbers, as in gymnax."""

    stride: Any = 1.0
    reach: Any = 2.0
    max_steps_in_episode: Any = 5


class Position(eqx.Module):
    place: Any
    time: Any


class Modern:
    """A walk on a line, with the methods of gymnax 1.0."""

    default_params = Params()
    actions = SimpleNamespace(n=2)

    def reset_env(self, key, params) -> Any:
        return jnp.zeros(2), Position(0.0, 0)  # Python numbers, as in gymnax

    def step_env(self, key, state, action, params):
        forward = action[0] if jnp.ndim(action) else 2.0 * action.astype(jnp.float32) - 1.0
        state = Position(state.place + params.stride * forward, state.time + 1)
        observation = jnp.stack([state.place, jnp.zeros(())])
        return observation, state, state.place, jnp.abs(state.place) >= params.reach, {}

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params=None):
        return self.actions

    def observation_space(self, params):
        return SimpleNamespace(low=-jnp.full(2, 3e38), high=jnp.full(2, 3e38), shape=(2,))


class Legacy(Modern):
    """gymnax before 1.0: a time limit sets `done`, and there is no `is_truncated`."""

    is_truncated: Any = property()  # hasattr returns False

    def step_env(self, key, state, action, params):
        observation, state, reward, done, info = super().step_env(key, state, action, params)
        return observation, state, reward, done | (state.time >= params.max_steps_in_episode), info


class Continuous(Modern):
    """Actions are forces whose bounds depend on the parameters."""

    def action_space(self, params=None):
        assert params is not None
        return SimpleNamespace(low=-0.5 * params.stride, high=params.stride, shape=(1,))


class Numbered(Modern):
    """Observations are state numbers."""

    def reset_env(self, key, params):
        return 0, Position(0.0, 0)

    def observation_space(self, params):
        return SimpleNamespace(n=3)


class Wrapper:
    """Forwards every attribute to the environment inside, as gymnax's wrappers do."""

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)


def with_actions(**space: Any) -> Modern:
    env = Modern()
    env.actions = SimpleNamespace(**space)
    return env


@eqx.filter_jit
def step(env: Any, state: Any, action: Any) -> Any:
    return env.step(jax.random.key(0), state, action)


def walk(env: Any, actions: list[Any]) -> list[tuple[float, ...]]:
    """Return (position, reward, terminated, truncated) after each action."""
    _, state = env.reset(jax.random.key(0))
    results = []
    for action in actions:
        observation, state, reward, terminated, truncated = step(env, state, action)
        assert observation.dtype == reward.dtype == jnp.float32
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
        results.append((float(observation[0]), float(reward), bool(terminated), bool(truncated)))
    return results


@pytest.mark.parametrize(
    ("env", "last"),
    [(Modern(), (1.0, 1.0, False, True)), (Legacy(), (1.0, 1.0, True, False))],
    ids=["gymnax 1", "gymnax 0"],
)
def test_a_time_limit_truncates_since_gymnax_1(env, last):
    ours = from_gymnax(env)
    assert ours.spec == EnvSpec(2, (2,), max_episode_steps=5)
    assert walk(ours, [RIGHT, LEFT, RIGHT, LEFT, RIGHT])[-1] == last
    assert walk(ours, [RIGHT, RIGHT]) == [(1.0, 1.0, False, False), (2.0, 2.0, True, False)]
    at_once = from_gymnax(env, Params(max_steps_in_episode=2))
    assert walk(at_once, [RIGHT, RIGHT])[-1] == (2.0, 2.0, True, False)  # both at once count as terminated


@pytest.mark.parametrize("stride", [2.0, np.float32(2.0), jnp.asarray(2.0)], ids=["float", "NumPy", "JAX"])
def test_actions_are_scaled_to_bounds_that_depend_on_parameters(stride):
    env = from_gymnax(Continuous(), Params(stride=stride, reach=100.0))
    assert (env.spec.num_actions, env.spec.action_size) == (0, 1)
    actions = [jnp.full((1,), action) for action in (-1.0, 1.0, 0.0)]
    assert np.diff([0.0, *(result[0] for result in walk(env, actions))]).tolist() == [-2.0, 4.0, 1.0]


def test_spaces_become_the_specification():
    numbered = from_gymnax(Numbered())
    observation, _ = numbered.reset(jax.random.key(0))
    assert (numbered.spec.num_states, numbered.spec.observation_shape, observation.dtype) == (3, (), jnp.int32)
    bounded = type("Bounded", (Modern,), {})()
    bounded.observation_space = lambda params: SimpleNamespace(low=-1, high=jnp.array([2.0, 3.0]), shape=(2,))
    assert from_gymnax(bounded).spec.observation_bounds == ((-1.0, 2.0), (-1.0, 3.0))


@pytest.mark.parametrize("number", [float, np.float32, jnp.asarray], ids=["float", "NumPy", "JAX"])
def test_each_lane_has_its_own_parameters(number):
    env = Modern()
    envs = [as_arrays(from_gymnax(env, Params(stride=number(stride), reach=number(20.0)))) for stride in (1.0, 3.0)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)
    first = eqx.filter_vmap(lambda env: env.step(jax.random.key(0), env.reset(jax.random.key(0))[1], RIGHT)[2])
    places = eqx.filter_jit(first)(stacked)
    assert places.tolist() == [1.0, 3.0]


def test_gymnax_environments_with_different_parameters_are_trained_together(unchecked):
    agent = rp.IQN(network=rp.Network(hidden=(4,)), training=rp.Training(learning_starts=60, buffer_size=60))
    env = Modern()
    run = rp.train([agent] * 2, [from_gymnax(env, Params(stride, 20.0)) for stride in (1.0, 3.0)], steps=60)
    rewards = np.abs(np.asarray(run.lanes.store.rows)[:, :, 3])  # after observation (2) and action: positions
    assert (rewards % np.array([1.0, 3.0]) == 0).all()
    assert rewards[:, 1].max() > 5 >= rewards[:, 0].max() > 0


def test_a_gymnax_environment_becomes_a_gymnasium_one():
    env = GymnasiumEnv(from_gymnax(Continuous()))
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert info == {}
    observation, reward, terminated, truncated, _ = env.step(np.ones(1, np.float32))
    assert (observation.tolist(), reward, terminated, truncated) == ([1.0, 0.0], 1.0, False, False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_gymnax(Wrapper(Modern())), "from_gymnax needs a reset_env and no wrapper around it, got Wrapper"),
        (lambda: from_gymnax("CartPole-v1"), "needs a reset_env and no wrapper around it, got str"),
        (lambda: from_gymnax(with_actions(spaces={})), "accepts Discrete and Box spaces only, got .* for actions"),
        (lambda: from_gymnax(with_actions(low=-1.0, high=3e38, shape=(1,))), "actions must have bounds"),
        (lambda: from_gymnax(with_actions(low=-3e38, high=1.0, shape=(1,))), "actions must have bounds"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
