"""Mountain car: every step agrees with Gymnasium's, and the penalty has the law of the paper."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import as_arrays
from riskpath.envs.mountain_car import GOAL, MAX_SPEED, MIN_POSITION, Car, RiskyMountainCar

KEY = jax.random.key(0)


@eqx.filter_jit
def step_many(env: RiskyMountainCar, keys, cars, actions):
    """Take one step in many episodes; their weight of the penalty is a number that compiles nothing."""
    return jax.vmap(env.step)(keys, cars, actions)


@eqx.filter_jit
def step_one(env: Any, car: Car, action: jax.Array):
    return env.step(KEY, car, action)


def car(position: float, velocity: float = 0.0, time: int = 0) -> Car:
    return Car(jnp.float32(position), jnp.float32(velocity), jnp.int32(time))


def force(action: float) -> jax.Array:
    return jnp.full((1,), action, jnp.float32)


def test_single_steps_agree_with_gymnasium():
    theirs, rng, n = gymnasium.make("MountainCarContinuous-v0").unwrapped, np.random.default_rng(0), 6000
    places = [rng.uniform(-1.2, 0.6, n), rng.uniform(-1.2, -1.14, n), rng.uniform(0.38, 0.46, n)]
    speeds = [rng.uniform(-0.07, 0.07, n), np.full(n, -0.07), np.full(n, 0.07), np.zeros(n)]
    actions = [rng.uniform(-1, 1, n), rng.uniform(-1.5, 1.5, n), np.full(n, -1), np.full(n, 1), np.zeros(n)]
    position, velocity, action = (rng.permuted(np.stack(x), axis=0)[0].astype("f") for x in (places, speeds, actions))
    wanted, reward, terminated = np.zeros((n, 2), "f"), np.zeros(n), np.zeros(n, bool)
    for i in range(n):
        theirs.state = np.stack([position[i], velocity[i]])  # pyright: ignore[reportAttributeAccessIssue]
        wanted[i], reward[i], terminated[i], *_ = theirs.step(action[i : i + 1])
    cars = jax.vmap(Car)(jnp.asarray(position), jnp.asarray(velocity), jnp.zeros(n, jnp.int32))
    obs, _, my_reward, ended, _ = step_many(RiskyMountainCar(), jax.random.split(KEY, n), cars, action[:, None])
    np.testing.assert_allclose(obs, wanted, rtol=0, atol=2e-7)
    clear = (abs(wanted[:, 0] - GOAL) > 1e-6) & (abs(wanted[:, 1]) > 1e-8)  # where rounding does not decide
    np.testing.assert_array_equal(ended[clear], terminated[clear])
    np.testing.assert_allclose(my_reward[clear], reward[clear], rtol=0, atol=1e-5)
    wall = (wanted == np.array([MIN_POSITION, 0], "f")).all(axis=1)
    assert min(wall.sum(), terminated.sum(), (abs(wanted[:, 1]) == np.float32(MAX_SPEED)).sum()) > 200


def test_whole_episodes_agree_with_gymnasium():
    theirs, ours = gymnasium.make("MountainCarContinuous-v0"), RiskyMountainCar()
    rng = np.random.default_rng(0)
    ends = set()
    for seed, clumsy in enumerate((0.0, 0.3, 1.0)):
        obs, _ = theirs.reset(seed=seed)
        state, terminated, truncated = car(*obs), False, False
        while not (terminated or truncated):
            action = (np.sign(obs[1:]) * (1 - clumsy) + clumsy * rng.uniform(-1, 1, 1)).astype(np.float32)
            obs, reward, terminated, truncated, _ = theirs.step(action)
            mine, state, my_reward, *ended = step_one(ours, state, jnp.asarray(action))
            np.testing.assert_allclose(mine, obs, rtol=0, atol=1e-4)
            np.testing.assert_allclose(my_reward, float(reward), rtol=0, atol=1e-5)
            assert [bool(x) for x in ended] == [terminated, truncated]
        ends.add("goal" if terminated else "limit")
    assert ends == {"goal", "limit"}


def test_an_episode_starts_at_rest_in_the_valley():
    obs, state = jax.device_get(jax.jit(jax.vmap(RiskyMountainCar().reset))(jax.random.split(KEY, 5000)))
    assert (obs[:, 1] == 0).all()
    assert (state.time == 0).all()
    assert -0.6 <= obs[:, 0].min() < -0.599 < -0.401 < obs[:, 0].max() <= -0.4
    assert abs(obs[:, 0].mean() + 0.5) < 0.003


@pytest.mark.parametrize(
    ("action", "size", "prob"),
    [(0.0, 2.0, 0.25), (0.5, 1.5, 0.4), (-0.5, 1.5, 0.4), (0.9, 1.1, 1 / 1.3), (1.0, 1.0, 1.0), (-3.0, 1.0, 1.0)],
)
@pytest.mark.parametrize("c", [0.5, 1.0])
def test_the_penalty_has_the_law_of_the_paper(action, size, prob, c):
    n = 20_000
    env: Any = as_arrays(RiskyMountainCar(c=c))
    cars = jax.tree.map(lambda x: np.full(n, x), car(-0.5))
    results = step_many(env, jax.random.split(KEY, n), cars, np.full((n, 1), action, np.float32))
    rewards = np.asarray(results[2], np.float64)
    penalty = rewards + 0.1 * action**2
    np.testing.assert_allclose(penalty[np.abs(penalty) > 1e-6], -c * size, rtol=1e-5)
    assert abs(penalty.mean() + c * size * prob) < 4 * c * size / n**0.5
    assert abs(penalty.var() - c**2 * size**2 * prob * (1 - prob)) < 4 * (c * size) ** 2 / n**0.5


def test_the_penalty_is_also_paid_at_the_goal():
    _, _, reward, terminated, _ = step_one(RiskyMountainCar(c=1.0), car(0.44, 0.05), force(1.0))
    assert terminated
    assert reward == pytest.approx(100 - 0.1 - 1)


def test_the_goal_terminates_and_the_limit_truncates():
    env = RiskyMountainCar(max_episode_steps=10)
    table = {(-0.5, 0.0, 8): (False, False), (-0.5, 0.0, 9): (False, True), (0.44, 0.05, 9): (True, False)}
    for start, ends in table.items():
        _, state, _, *ended = step_one(env, car(*start), force(0.0))
        assert (*map(bool, ended),) == ends
        assert state.time == start[2] + 1


def test_a_goal_velocity_must_be_reached():
    fast, slow = (as_arrays(RiskyMountainCar(goal_velocity=v)) for v in (0.06, 0.04))
    assert [bool(step_one(env, car(0.44, 0.05), force(0.0))[3]) for env in (fast, slow)] == [False, True]


@eqx.filter_jit
def first_rewards(stacked):
    return eqx.filter_vmap(lambda env: env.step(KEY, car(-0.5), force(1.0))[2])(stacked)


@pytest.mark.parametrize("last", [1.0, 1, np.float32(1), np.int64(1)], ids=["float", "int", "float32", "int64"])
def test_the_weight_of_the_penalty_may_differ_between_lanes(last, unchecked):
    envs = [as_arrays(RiskyMountainCar(c=c, goal_velocity=0)) for c in (0.0, 0.5, last)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)
    rewards = first_rewards(stacked)
    np.testing.assert_allclose(rewards, [-0.1, -0.6, -1.1], rtol=1e-5)


def test_actions_are_continuous():
    spec = RiskyMountainCar().spec
    assert (spec.num_actions, spec.observation_shape, spec.action_size, spec.max_episode_steps) == (0, (2,), 1, 999)
    assert RiskyMountainCar().action_mask(None).shape == (0,)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"c": -0.1}, r"c must be at least 0, got -0\.1"),
        ({"c": -1}, "c must be at least 0, got -1"),
        ({"c": float("nan")}, "c must be a finite number, got nan"),
        ({"c": "much"}, "c must be a finite number, got 'much'"),
        ({"c": None}, "c must be a finite number, got None"),
        ({"power": float("inf")}, "power must be a finite number, got inf"),
        ({"goal_velocity": None}, "goal_velocity must be a finite number, got None"),
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1, got 0"),
        ({"weight": 1.0}, "RiskyMountainCar has no field 'weight'"),
    ],
)
def test_a_wrong_field_is_refused_by_name(field, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.make("RiskyMountainCar", **field)
