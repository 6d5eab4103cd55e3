"""Tasks of published systems: every step against numbers recorded from their own code, and what is best."""

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.autonomous_vehicle import CHANCES, Crossing
from riskpath.envs.driving import MANOEUVRES, leader_path
from riskpath.envs.guarded_maze import CELLS
from riskpath.envs.noisy_lander import BONUS, NOISE, TERRAIN, NoisyLander
from riskpath.envs.patrolled_maze import Patrolled
from riskpath.envs.servers import MOST, PEAKS, TASKS

from .backward import outcome_law

RECORDED = json.loads((Path(__file__).parent / "public_tasks.json").read_text())
KEY = jax.random.key(0)


@eqx.filter_jit
def move(env: Any, state: Any, action: Any, noise: Any) -> Any:
    return env.move(state, action, noise)


@eqx.filter_jit
def step(env: Any, state: Any, action: Any, key: Any) -> Any:
    return env.step(key, state, action)


@eqx.filter_jit
def work(env: Any, state: Any, action: Any, arrived: Any, lengths: Any) -> Any:
    return env.work(state, action, env.rates(state), arrived, lengths)


@pytest.mark.parametrize("steps", RECORDED["guarded_maze"], ids=["short", "long", "random", "random"])
def test_guarded_maze_steps_like_the_public_code(steps):
    env = rp.GuardedMaze()
    _, state = env.reset(KEY)
    for action, luck, row, col, reward, done in steps:
        assert bool(env.action_mask(state)[action])
        seen, state, mine, terminated, truncated = move(env, state, jnp.int32(action), jnp.float32(luck))
        assert CELLS[int(seen)] == (row, col)
        assert float(mine) == pytest.approx(reward, abs=1e-3)
        assert bool(terminated | truncated) == done


def test_guarded_maze_has_walls_a_limit_and_random_guards():
    env = rp.GuardedMaze(max_episode_steps=14, paid_steps=14)
    seen, state = env.reset(KEY)
    assert CELLS[int(seen)] == (6, 1)
    assert env.action_mask(state).tolist() == [True, False, False, True]
    before, step = state, jax.jit(env.step)
    for column in (0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2):  # there and back
        _, state, reward, terminated, truncated = step(KEY, state, jnp.int32(column))
    assert (float(reward), bool(terminated), bool(truncated)) == (-1.0, False, True)
    near = type(before)(jnp.int32(CELLS.index((6, 4))), before.time)
    steps = jax.jit(jax.vmap(lambda key: env.step(key, near, jnp.int32(0))[2]))
    earned = np.asarray(steps(jax.random.split(KEY, 20_000)))
    assert (earned.mean(), earned.std()) == pytest.approx((-1.0, 30.0), abs=0.7)


def test_guarded_maze_knows_its_best_value():
    env = rp.GuardedMaze()
    draws = NormalDist(4, 30).samples(400_000, seed=0)
    for level in (0.05, 0.2, 0.95):
        risky, best = env.best(rp.CVaR(level))
        tail = np.sort(draws)[: int(level * len(draws))].mean()
        assert risky == pytest.approx(tail, abs=0.3)
        assert best == (-4.0 if level < 0.5 else risky)
    assert env.best(rp.Mean()) == (4.0, 4.0)
    with pytest.raises(rp.RiskpathError, match=r"known for the mean and CVaR, not for wang:-0\.75"):
        env.best(rp.Wang(-0.75))


def test_vehicle_has_the_outcomes_of_the_public_code():
    mdp: Any = rp.AutonomousVehicle().mdp()
    listed = {(state, action): o for state, table in mdp.outcomes.items() for action, o in table.items()}
    names = ("north", "east", "south", "west")
    wanted = {}
    for x, y, action, to_x, to_y, first, second, third, done in RECORDED["autonomous_vehicle"]:
        following = Crossing(to_x, to_y)
        assert mdp.is_terminal(following, 1) == done
        rewards = zip(CHANCES, (first, second, third), strict=True)
        wanted[Crossing(x, y), names[action]] = outcome_law([(*pair, following) for pair in rewards])
    assert {key: outcome_law(outcomes) for key, outcomes in listed.items()} == wanted
    assert mdp.horizon == 32


def test_vehicle_best_values(unchecked):
    mdp = rp.AutonomousVehicle().mdp()
    mean = rp.solve(mdp, "mean", "markov")
    assert (mean.value, mean.law.risk("cvar:0.05")) == pytest.approx((37.2, 4.795536))
    assert rp.solve(mdp, "cvar:0.05", "adaptive").value == pytest.approx(26.3439)


@pytest.mark.parametrize("episode", RECORDED["patrolled_maze"])
def test_patrolled_maze_steps_like_the_public_code(episode):
    state: Any = Patrolled(jnp.array(episode["start"]), jnp.float32(episode["cost"]), jnp.int32(0))
    for action, dx, dy, x, y, reward, done in episode["steps"]:
        seen, state, mine, terminated, _ = move(rp.PatrolledMaze(), state, jnp.int32(action), jnp.array([dx, dy]))
        np.testing.assert_allclose(seen, [x, y], atol=1e-4)
        assert float(mine) == pytest.approx(reward, abs=1e-3)
        assert bool(terminated) == done


def test_patrolled_maze_draws_its_conditions():
    keys = jax.random.split(KEY, 20_000)
    seen, state = jax.device_get(jax.jit(jax.vmap(rp.PatrolledMaze().reset))(keys))
    there = state.cost > 0
    assert there.mean() == pytest.approx(0.2, abs=0.01)
    assert state.cost[there].mean() == pytest.approx(2.0, abs=0.1)
    assert (float(seen.min()), float(seen.max())) == pytest.approx((0.6, 3.6), abs=1e-3)
    _, fixed = jax.jit(jax.vmap(rp.PatrolledMaze(random_cost=False, p_patrol=1.0).reset))(keys)
    assert (np.asarray(fixed.cost) == 2.0).all()


@pytest.mark.parametrize(
    "episode",
    [
        pytest.param(episode, id=name, marks=[] if name in ("follow", "off the road") else pytest.mark.long)
        for episode, name in zip(RECORDED["driving"], ("follow", "brakes", "ahead", "off the road"), strict=True)
    ],
)
def test_driving_steps_like_the_public_code(episode, x64):
    """In double precision, as the public code: in single precision 60 steps move the cars apart by 3 mm."""
    env = rp.Driving()
    first, *rows = episode["first"], *episode["steps"]
    state = env.begin(jnp.array(episode["leader"]), jnp.asarray(episode["speed"]), jnp.array(episode["car"]))
    np.testing.assert_allclose(env.observe(state), first, atol=2e-4)
    terminated = None
    for action, *wanted, reward, done in rows:
        seen, state, mine, terminated, truncated = step(env, state, jnp.int32(action), KEY)
        np.testing.assert_allclose(seen, wanted, atol=1.5e-4)
        assert float(mine) == pytest.approx(reward, abs=1e-3)
        assert bool(terminated | truncated) == done
    assert bool(terminated) == (len(rows) < 60)


def test_driving_draws_its_starts_and_conditions():
    env, keys = rp.Driving(), jax.random.split(KEY, 8_000)
    _, state = jax.device_get(jax.jit(jax.vmap(env.reset))(keys))
    x, y, speed, heading = state.car.T
    assert (x.max() < -5 * 3.47, -x.mean()) == (True, pytest.approx(17.38 + 10, abs=0.3))
    assert (speed.mean(), speed.std()) == (pytest.approx(40, abs=0.1), pytest.approx(3, abs=0.1))
    shares = [(y == 2).mean(), (y == -2).mean(), (y == 0).mean(), (heading > 0.15).mean()]
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.2, 0.1], atol=0.02)
    np.testing.assert_allclose(heading[y == 0], (np.sign(heading) * 0.2007 * 40 / speed)[y == 0], rtol=1e-5)
    first = state.leader[:, 0, 1]
    assert (first.mean(), first.std()) == (pytest.approx(40, abs=0.1), pytest.approx(3, abs=0.1))
    path = np.asarray(jax.jit(leader_path)(jnp.full(MANOEUVRES, 3), jnp.float32(40.0)))
    assert path[:, 1].min() > 15  # a slow leader accelerates instead


@pytest.mark.parametrize("episode", RECORDED["servers"], ids=["a peak", "adding", "removing"])
def test_servers_work_like_the_public_code(episode):
    fields = {"minutes": episode["minutes"], "start_servers": episode["start_servers"]}
    for pays_at_end in (True, False):
        env = rp.Servers(**fields, pays_at_end=pays_at_end)
        peaks = jnp.array(episode["peaks"] + [10**6] * (PEAKS - len(episode["peaks"])))
        (_, state), total, reward = env.start(peaks, key=KEY), 0.0, None
        for action, arrivals, tasks, servers, queue, reward, done in episode["steps"]:
            arrived, lengths = np.zeros(60, np.int32), np.full((60, MOST, TASKS), 9.0, np.float32)
            arrived[: len(arrivals)] = arrivals
            nth = np.zeros((60, MOST), int)
            for place, length in tasks:  # second · 10 + server, in the order in which they begin; 256ths of a second
                second, server = divmod(place, MOST)
                lengths[second, server, nth[second, server]] = length / 256
                nth[second, server] += 1
            seen, state, mine, terminated, truncated = work(env, state, jnp.int32(action), arrived, lengths)
            total += float(mine)
            assert np.flatnonzero(seen[:-1]).tolist() == [servers - 3]
            assert (float(seen[-1]) * 30, int(state.queue)) == (pytest.approx(queue, abs=1e-3), queue)
            assert (bool(terminated), bool(truncated)) == (done, False)
            if pays_at_end:
                assert float(mine) == pytest.approx(reward, rel=1e-5)
        assert total == pytest.approx(reward, rel=1e-5)


def test_servers_draw_requests_at_the_rate_of_the_peaks():
    env = rp.Servers(peaks_per_hour=2.0)
    _, state = jax.device_get(jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 20_000)))
    inside = state.peaks < 3_600
    assert inside.sum(axis=1).mean() == pytest.approx(2.0, abs=0.04)
    assert state.peaks[inside].mean() == pytest.approx(1_800, abs=30)
    assert (np.diff(state.peaks, axis=1) > 0).all()
    _, farm = env.start(jnp.array([30] + [10**6] * (PEAKS - 1)), key=KEY)
    rates = np.asarray(env.rates(farm))
    wanted = np.where(np.arange(60) < 30, 3.0, 3.0 + 2.99 * (299 / 300.0) ** (np.arange(60) - 30))
    np.testing.assert_allclose(rates, wanted, rtol=5e-3)
    assert rates[29:31] == pytest.approx([3.0, 5.99], abs=1e-3)


class Falling(gymnasium.Env):
    """A simulator whose episodes end after one step, to the side of the action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.array([2 * action - 1], np.float32), 5.0, True, False, {}


def test_the_lander_is_noisy_on_the_right_only():
    inner = Falling()
    env, earned = NoisyLander(inner), []
    for seed in (3, *[None] * 2_000):
        env.reset(seed=seed)
        assert inner.seed == TERRAIN
        assert env.step(0)[1] == 5.0
        earned.append(env.step(1)[1])
    assert np.mean(earned) == pytest.approx(5 + BONUS, abs=7)
    assert np.std(earned) == pytest.approx(NOISE, rel=0.06)
    env.reset(seed=3)
    assert env.step(1)[1] == earned[0]
    assert "riskpath/NoisyLander-v0" in gymnasium.registry


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("GuardedMaze", {"noise": -1.0}, "noise must be at least 0, got -1"),
        ("GuardedMaze", {"paid_steps": 3}, "paid_steps must be at least 14, got 3"),
        ("AutonomousVehicle", {"max_episode_steps": 2}, "max_episode_steps must be at least 7, got 2"),
        ("PatrolledMaze", {"p_patrol": 2.0}, "p_patrol must be from 0 to 1, got 2"),
        ("Driving", {"p_brake": 0.5}, "p_nothing, .* must not exceed 1 together, got 1.152"),
        ("Servers", {"start_servers": 11}, "start_servers must be at most 10, got 11"),
        ("Servers", {"peaks_per_hour": 5.0}, "peaks_per_hour must be at most 4, got 5"),
    ],
)
def test_a_wrong_field_is_refused_by_name(name, fields, message):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.make(name, **fields)
