"""Mountain car: Gymnasium's step for step, the paper's penalty by its law, and the benchmark's optimum in small."""

import importlib.util
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.mountain_car import GOAL, MAX_SPEED, MIN_POSITION, Car, RiskyMountainCar, picture
from riskpath.experiments import mountain_car
from riskpath.training import fused_loop as loop

KEY = jax.random.key(0)


def car(position: float, velocity: float = 0.0, time: int = 0) -> Car:
    return Car(jnp.float32(position), jnp.float32(velocity), jnp.int32(time))


def force(action: float) -> jax.Array:
    return jnp.full((1,), action, jnp.float32)


def benchmark():
    path = Path(__file__).parent.parent / "benchmarks" / "mountain_car_optimum.py"
    spec = importlib.util.spec_from_file_location("mountain_car_optimum", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_step_is_gymnasiums():
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
    step = jax.vmap(RiskyMountainCar().step, (None, 0, 0))
    obs, _, my_reward, ended, _ = step(KEY, cars, jnp.asarray(action)[:, None])
    np.testing.assert_allclose(obs, wanted, rtol=0, atol=2e-7)
    clear = (abs(wanted[:, 0] - GOAL) > 1e-6) & (abs(wanted[:, 1]) > 1e-8)  # where rounding cannot decide
    np.testing.assert_array_equal(ended[clear], terminated[clear])
    np.testing.assert_allclose(my_reward[clear], reward[clear], rtol=0, atol=1e-5)
    wall = (wanted == np.array([MIN_POSITION, 0], "f")).all(axis=1)
    assert min(wall.sum(), terminated.sum(), (abs(wanted[:, 1]) == np.float32(MAX_SPEED)).sum()) > 200


def test_whole_episodes_are_gymnasiums():
    theirs, ours = gymnasium.make("MountainCarContinuous-v0"), RiskyMountainCar()
    step = jax.jit(ours.step)
    rng = np.random.default_rng(0)
    ends = set()
    for seed, clumsy in enumerate((0.0, 0.3, 1.0)):
        obs, _ = theirs.reset(seed=seed)
        state, terminated, truncated = car(*obs), False, False
        while not (terminated or truncated):
            action = (np.sign(obs[1:]) * (1 - clumsy) + clumsy * rng.uniform(-1, 1, 1)).astype(np.float32)
            obs, reward, terminated, truncated, _ = theirs.step(action)
            mine, state, my_reward, *ended = step(KEY, state, jnp.asarray(action))
            np.testing.assert_allclose(mine, obs, rtol=0, atol=1e-4)
            np.testing.assert_allclose(my_reward, float(reward), rtol=0, atol=1e-5)
            assert [bool(x) for x in ended] == [terminated, truncated]
        ends.add("goal" if terminated else "limit")
    assert ends == {"goal", "limit"}


def test_starts_at_rest_in_the_valley():
    obs, state = jax.vmap(RiskyMountainCar().reset)(jax.random.split(KEY, 5000))
    assert (obs[:, 1] == 0).all()
    assert (state.time == 0).all()
    assert -0.6 <= obs[:, 0].min() < -0.599 < -0.401 < obs[:, 0].max() <= -0.4
    assert abs(obs[:, 0].mean() + 0.5) < 0.003


@pytest.mark.parametrize(
    ("action", "size", "prob"),
    [(0.0, 2.0, 0.25), (0.5, 1.5, 0.4), (-0.5, 1.5, 0.4), (0.9, 1.1, 1 / 1.3), (1.0, 1.0, 1.0), (-3.0, 1.0, 1.0)],
)
@pytest.mark.parametrize("c", [0.5, 1.0])
def test_penalty_has_the_papers_law(action, size, prob, c):
    n = 20_000
    step = jax.jit(jax.vmap(RiskyMountainCar(c=c).step, (0, None, None)))
    rewards = np.asarray(step(jax.random.split(KEY, n), car(-0.5), force(action))[2], np.float64)
    penalty = rewards + 0.1 * action**2
    np.testing.assert_allclose(penalty[np.abs(penalty) > 1e-6], -c * size, rtol=1e-5)
    assert abs(penalty.mean() + c * size * prob) < 4 * c * size / n**0.5
    assert abs(penalty.var() - c**2 * size**2 * prob * (1 - prob)) < 4 * (c * size) ** 2 / n**0.5


def test_penalty_falls_due_at_the_goal_as_well():
    _, _, reward, terminated, _ = RiskyMountainCar(c=1.0).step(KEY, car(0.44, 0.05), force(1.0))
    assert terminated
    assert reward == pytest.approx(100 - 0.1 - 1)


def test_the_goal_terminates_and_the_limit_truncates():
    env = RiskyMountainCar(max_episode_steps=10)
    table = {(-0.5, 0.0, 8): (False, False), (-0.5, 0.0, 9): (False, True), (0.44, 0.05, 9): (True, False)}
    for start, ends in table.items():
        _, state, _, *ended = env.step(KEY, car(*start), force(0.0))
        assert (*map(bool, ended),) == ends
        assert state.time == start[2] + 1


def test_a_goal_velocity_must_be_reached():
    fast, slow = RiskyMountainCar(goal_velocity=0.06), RiskyMountainCar(goal_velocity=0.04)
    assert [bool(env.step(KEY, car(0.44, 0.05), force(0.0))[3]) for env in (fast, slow)] == [False, True]


def test_weights_differ_from_lane_to_lane():
    worlds = [RiskyMountainCar(c=c) for c in (0.0, 0.5, 1)]
    world = loop.stack([as_arrays(world) for world in worlds], 2, eqx.is_array)
    rewards = eqx.filter_vmap(lambda env: env.step(KEY, car(-0.5), force(1.0))[2])(world)
    np.testing.assert_allclose(rewards, [-0.1, -0.1, -0.6, -0.6, -1.1, -1.1], rtol=1e-5)
    spec = worlds[0].spec
    assert (spec.num_actions, spec.observation_shape, spec.action_size, spec.max_episode_steps) == (0, (2,), 1, 999)
    assert worlds[0].mask(None).shape == (0,)


@pytest.mark.parametrize("field", [{"c": -0.1}, {"c": float("nan")}, {"max_episode_steps": 0}, {"weight": 1.0}])
def test_wrong_fields_are_named(field, unchecked):
    with pytest.raises(rp.RiskpathError, match=next(iter(field))):
        rp.make("RiskyMountainCar", **field)


def test_picture_shows_where_the_car_is():
    left, right = (picture(car(x), 150).astype(int) for x in (-0.9, 0.0))
    assert left.shape == right.shape == (100, 150, 3)
    columns = np.flatnonzero((left != right).any(axis=(0, 2)))
    scale = 150 / 1.8
    moved = [(columns[columns < 60]).mean() / scale - 1.2, (columns[columns > 60]).mean() / scale - 1.2]
    np.testing.assert_allclose(moved, [-0.9, 0.0], atol=0.04)
    assert (picture(car(GOAL), 150) != picture(car(-0.5), 150)).any()


@pytest.fixture(scope="module")
def optimum():
    return benchmark()


def test_the_backup_is_the_plain_maximum_over_forces(optimum):
    """Against a loop over forces at some nodes, on a value that linear interpolation reproduces."""
    env, grid = as_arrays(RiskyMountainCar(c=0.5)), optimum.Grid(91, 71)
    plane = 3 * grid.x[:, None] + 40 * grid.v[None, :]
    got = jax.jit(lambda value: optimum.backup(env, grid, value, jnp.float32(0.2)))(plane)
    for i, j in ((20, 30), (40, 35), (60, 40), (30, 60)):
        x, v, options = float(grid.x[i]), float(grid.v[j]), []
        for a in optimum.ACTIONS:
            after = np.clip(v + 0.0015 * a - 0.0025 * np.cos(3 * x), -0.07, 0.07)
            size, prob = 0.5 * (2 - abs(a)), 1 / (4 - 3 * abs(a))
            reward = -0.1 * a * a - size * prob - 0.2 * size**2 * prob * (1 - prob)
            options.append(reward + 0.99 * (3 * (x + after) + 40 * after))
        assert got[i, j] == pytest.approx(max(options), abs=1e-4)


def test_a_coarse_optimum_already_beats_swinging_at_full_force(optimum):
    (record,) = optimum.cells(0.5, ["cvar:0.25"], optimum.Grid(91, 71), [0.0, 0.15], 100, 10)
    assert record["best"] == pytest.approx(23.5, abs=0.5)
    assert record["bang_bang"] == pytest.approx(-6.0, abs=1.0)
    assert record["do_nothing"] == pytest.approx(-29.0, abs=1.0)


def test_the_control_is_given_its_due_and_no_more():
    def record(agent: str, c: float, risk: str, beta: float) -> dict:
        return {"agent": agent, "c": c, "risk": risk, "beta": beta, "seed": 0}

    def result(tql: float, cells: int) -> dict:
        pairs = [(c, risk) for c in mountain_car.WEIGHTS for risk in mountain_car.MEASURES][:cells]
        rows = [record("TQL convolved", *pair, tql) for pair in pairs]
        return {"records": rows + [record("mean control", *pair, 1.0) for pair in pairs]}

    assert "in 30 of 30 cells" in mountain_car.verdict(result(0.9, 30))
    assert "hardly asks for risk awareness" in mountain_car.verdict(result(1.1, 30))
    assert "hardly" not in mountain_car.verdict(result(3.0, 30))
    assert "hardly" not in mountain_car.verdict(result(0.9, 1))
    assert mountain_car.verdict({"records": []}) == ""
