"""RunningStatistics of episodes against NumPy, for every course that training can take."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.agents.episodes import (
    EARLY,
    ENOUGH,
    FADING,
    NUM_STARTS,
    PATH,
    REACH,
    WINDOW,
    Episodes,
    Units,
    no_episodes,
)

STEPS, ENVS = 120, 3
RNG = np.random.default_rng(0)
NORMAL, RANDOM_ENDS = RNG.normal(size=(STEPS, ENVS)).astype(np.float32), RNG.uniform(size=(STEPS, ENVS)) < 0.2
TIME = np.tile(np.arange(STEPS)[:, None], (1, ENVS))
NEVER, ALWAYS, LAST = TIME < 0, TIME >= 0, TIME % 60 == 59
CASES = {  # rewards [steps, E], where episodes end, discount
    "several environments": (NORMAL, RANDOM_ENDS, 1.0),
    "discounted": (NORMAL, RANDOM_ENDS, 0.9),
    "one step each": (NORMAL, ALWAYS, 0.5),
    "far from 0": (NORMAL + 1e4, ALWAYS, 1.0),
    "no episode has finished": (NORMAL, NEVER, 0.9),
    "one episode has finished": (0 * NORMAL + 1, (TIME == 4) & (np.arange(ENVS) == 1), 1.0),
    "all rewards are 0": (0 * NORMAL, RANDOM_ENDS, 1.0),
    "all returns are equal": (0 * NORMAL - 3, LAST, 1.0),
    "rewards at the end only": (NORMAL * LAST, LAST, 0.9),
    "huge": (NORMAL * 1e30, RANDOM_ENDS, 1.0),
    "tiny": (NORMAL * 1e-30, RANDOM_ENDS, 1.0),
}


@jax.jit
def watch_one(rewards: Any, ends: Any, discount: Any, fresh: Any = True) -> Episodes:
    """Return the statistics as the training loop keeps them."""
    shown = (jnp.zeros((ENVS, 1)), jnp.ones((ENVS, 1), bool))

    def step(carry: Any, now: Any) -> Any:
        (episodes, so_far, weight, time), (reward, end) = carry, now
        so_far = so_far + weight * reward
        episodes = episodes.add(reward, so_far, time, end, *shown, discount, fresh)
        following = (jnp.where(end, 0.0, so_far), jnp.where(end, 1.0, discount * weight), jnp.where(end, 0, time + 1))
        return (episodes, *following), None

    start = (no_episodes(*shown), jnp.zeros((ENVS,)), jnp.ones((ENVS,)), jnp.zeros((ENVS,), jnp.int32))
    return jax.lax.scan(step, start, (rewards, ends))[0][0]


def watch(case: str, factor: float = 1.0) -> Episodes:
    """Return the statistics of one case."""
    rewards, ends, discount = CASES[case]
    return watch_one(jnp.asarray(factor * rewards, jnp.float32), jnp.asarray(ends), jnp.asarray(discount))


def by_numpy(rewards: np.ndarray, ends: np.ndarray, discount: float) -> tuple[list[list[float]], np.ndarray]:
    """Return the returns of the episodes that finish at each step, and all Σ γ^{t−i} r_i: [steps, E]."""
    returns, sizes = [[] for _ in rewards], np.zeros(rewards.shape)
    for env, (reward, end) in enumerate(zip(rewards.T.astype(np.float64), ends.T, strict=True)):
        start = 0
        for stop in range(1, len(reward) + 1):
            part = reward[start:stop]
            sizes[stop - 1, env] = np.sum(part[::-1] * discount ** np.arange(len(part)))
            if end[stop - 1]:
                returns[stop - 1].append(float(np.sum(part * discount ** np.arange(len(part)))))
                start = stop
    return returns, sizes


def faded(groups: list[list[float]]) -> tuple[float, float]:
    """Return mean and standard deviation; as each group comes in, all others together weigh a fifth of their number."""
    values, weights, count = np.zeros(0), np.zeros(0), 0
    for group in filter(len, groups):
        weights = np.concatenate([weights * (count / (FADING + 1)), np.ones(len(group))])
        values, weights, count = np.append(values, group), weights / weights.sum(), count + len(group)
    mean = float(weights @ values)
    return mean, float(np.sqrt(weights @ (values - mean) ** 2))


@pytest.mark.parametrize("case", CASES)
def test_statistics_equal_those_of_numpy(case):
    episodes, (groups, sizes) = watch(case), by_numpy(*CASES[case])
    returns = np.concatenate([np.zeros(0), *groups])
    assert float(episodes.count) == len(returns) == int(episodes.num_starts)
    mean, deviation, size, spread = 0.0, 0.0, 0.0, 1.0
    for step, row in enumerate(sizes):
        past = step / (FADING + 1)
        size = np.sqrt((past * size**2 + np.mean(row**2)) / (past + 1))
        mean, deviation = faded(groups[: step + 1])
        spread = max(deviation, size / REACH) or spread  # while critics are fresh, the unit follows at once
    largest = np.abs(returns).max(initial=0.0)
    found = [float(x) for x in (episodes.deviation, episodes.size, episodes.unit)]
    assert found == pytest.approx([deviation, size, spread], rel=1e-4, abs=1e-6 * largest)
    if len(returns):
        summary = [float(x) for x in (episodes.mean, episodes.low, episodes.high)]
        assert summary == pytest.approx([mean, returns.min(), returns.max()], rel=1e-5, abs=1e-5 * largest)
    latest = np.concatenate([returns, np.zeros(WINDOW)])[:WINDOW]  # a ring
    latest[: max(0, len(returns) - WINDOW)] = returns[WINDOW:][:WINDOW]
    latest[: max(0, len(returns) - 2 * WINDOW)] = returns[2 * WINDOW :]
    np.testing.assert_allclose(episodes.ring, latest, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [1024.0, 2.0**-10])
def test_a_power_of_two_multiplies_them_exactly(case, factor):
    one, other = watch(case), watch(case, factor)
    for name in ("mean", "deviation", "low", "high", "size", "recent", "path", "ring", "wanted_unit"):
        np.testing.assert_array_equal(factor * getattr(one, name), getattr(other, name))
    for name in ("repeats", "longest", "visits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    unit = factor if CASES[case][0].any() else 1.0  # where all is 0 there is no unit
    assert float(other.unit) == unit * float(one.unit)


@pytest.mark.parametrize(("values", "share"), [(1, 1.0), (4, 0.25), (10**6, 0.0)])
def test_it_counts_how_often_early_returns_repeat(values, share):
    rewards = np.random.default_rng(0).integers(values, size=(2 * EARLY // ENVS, ENVS)) / 10
    rewards[EARLY // ENVS :] = 7.0  # later returns are all the same
    episodes = watch_one(jnp.asarray(rewards, jnp.float32), jnp.ones(rewards.shape, bool), jnp.asarray(1.0))
    assert float(episodes.repeats) == pytest.approx(share, abs=0.05)


def test_early_exploration_fades():
    """100 wild episodes, then 900 calm ones: deviation and unit are those of the calm ones, and change slowly."""
    rng = np.random.default_rng(0)
    rewards = np.concatenate([100 * rng.normal(size=(100, ENVS)), rng.normal(size=(900, ENVS))])
    ends = np.ones(rewards.shape, bool)
    both = [(jnp.asarray(rewards[:n], jnp.float32), jnp.asarray(ends[:n])) for n in (980, 1000)]
    before, after = (watch_one(*one, jnp.asarray(1.0)) for one in both)
    assert float(after.deviation) == pytest.approx(1.0, rel=0.5)
    assert float(after.deviation) == pytest.approx(float(before.deviation), rel=0.05)
    assert float(after.wanted_unit) == pytest.approx(1.28, rel=0.2)  # the 90 % quantile of a normal variable
    assert float(after.wanted_unit) == pytest.approx(float(before.wanted_unit), rel=0.2)


def test_the_unit_stays_once_critics_have_learned_in_it():
    """What then follows `wanted_unit` multiplies the critics as well (test_units.py)."""
    rewards, ends, _ = CASES["several environments"]
    given = (jnp.asarray(rewards), jnp.asarray(ends), jnp.asarray(1.0))
    fresh, learned = (watch_one(*given, jnp.asarray(value)) for value in (True, False))
    assert float(fresh.unit) != 1.0
    assert float(learned.unit) == 1.0
    for name in ("deviation", "size", "wanted_unit"):
        assert float(getattr(fresh, name)) == float(getattr(learned, name))


def returned(*returns: Any) -> Episodes:
    """Return the statistics after episodes of one step with these returns."""
    rewards = jnp.asarray(np.concatenate(returns).reshape(-1, ENVS), jnp.float32)
    return watch_one(rewards, jnp.ones(rewards.shape, bool), jnp.asarray(1.0))


def test_a_few_catastrophes_do_not_decide_about_the_unit():
    normal = np.random.default_rng(1).normal(size=WINDOW + 1)
    calm = returned(normal)
    for number in (1, 6):
        wild = normal.copy()
        wild[-number:] = -1e5
        episodes = returned(wild)
        assert float(episodes.wanted_unit) == pytest.approx(float(calm.wanted_unit), rel=0.25)
        assert float(episodes.deviation) > 1e3
        assert float(episodes.low) == -1e5
    many = normal.copy()
    many[::5] = -1e5  # a fifth is no exception
    assert float(returned(many).wanted_unit) > 1e4


@pytest.mark.parametrize("count", [ENVS * 3, ENVS * 7, WINDOW + 1, 2 * WINDOW + 2])
def test_the_unit_is_half_the_distance_of_outer_quantiles_of_the_latest_returns(count):
    returns = np.random.default_rng(2).normal(5.0, 3.0, size=count).astype(np.float32)
    episodes = returned(returns)
    latest = np.sort(returns[-WINDOW:])
    known = len(latest)
    expected = 0.5 * float(latest[int(np.ceil(np.float32(0.9) * known)) - 1] - latest[int(np.float32(0.1) * known)])
    if count < ENOUGH:
        expected = max(float(episodes.deviation), float(episodes.size) / REACH)
    assert float(episodes.wanted_unit) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("returns", "unit"), [(7.0, 0.7), (-7.0, 0.7), (0.0, 0.0)])
def test_equal_returns_give_a_unit_by_their_size(returns, unit):
    assert float(returned(np.full(60, returns)).wanted_unit) == pytest.approx(unit, rel=1e-4)


@pytest.mark.parametrize(
    ("limit", "lengths", "clocks"),
    [  # the limit, lengths of the episodes so far, and the share of the time that has passed at 0, 2, 4, 8 and 20
        (8, [], [0.0, 0.25, 0.5, 1.0, 1.0]),
        (8, [2, 3], [0.0, 0.25, 0.5, 1.0, 1.0]),
        (None, [4], [0.0, 0.5, 1.0, 1.0, 1.0]),
        (None, [16, 3], [0.0, 0.125, 0.25, 0.5, 1.0]),
        (None, [], [0.0, 1.0, 1.0, 1.0, 1.0]),
        (8, [16], [0.0, 0.125, 0.25, 0.5, 1.0]),
    ],
)
def test_the_clock_shows_the_share_of_the_longest_episode(limit, lengths, clocks):
    shown = (jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
    episodes, zero = no_episodes(*shown, limit), jnp.zeros((1,))
    for length in lengths:
        for time in range(length):
            done = jnp.array([time == length - 1])
            episodes = compiled_add(episodes, zero, zero, jnp.array([time], jnp.int32), done, *shown, 1.0)
    np.testing.assert_allclose(episodes.clock(jnp.array([0, 2, 4, 8, 20], jnp.int32)), clocks)
    assert float(episodes.clock(jnp.int32(2))) == clocks[1]


compiled_add = jax.jit(Episodes.add)


@pytest.mark.parametrize("length", [8, 40, PATH, 100, 640])
def test_what_is_still_expected_falls_along_the_mean_path(length):
    """Episodes that earn as much in every step: what is expected falls linearly, to nothing at the end."""
    shown = (jnp.zeros((ENVS, 1)), jnp.ones((ENVS, 1), bool))

    def step(episodes: Episodes, time: Any) -> Any:
        so_far = 2.0 * (time + 1).astype(jnp.float32) * jnp.ones(ENVS)
        ends = jnp.tile(time == length - 1, ENVS)
        return episodes.add(jnp.full(ENVS, 2.0), so_far, jnp.tile(time, ENVS), ends, *shown, 1.0), None

    @jax.jit
    def played() -> Any:
        times = jnp.arange(length, dtype=jnp.int32)
        episodes = jax.lax.scan(step, no_episodes(*shown, length), jnp.tile(times, 3))[0]
        units = Units.of(episodes, jnp.ones(()))
        return episodes.visits, jax.vmap(units.expected)(episodes.clock(jnp.append(times, length)))

    visits, found = played()
    assert visits.sum() == 3 * length * ENVS
    one_part = 2.0 * max(1.0, length / PATH)  # where a part of the path has several steps, it is their mean
    np.testing.assert_allclose(found, 2.0 * (length - np.arange(length + 1)), atol=1.1 * one_part)
    assert float(found[0]) == pytest.approx(2.0 * length)


@pytest.mark.parametrize("envs", [1, 3, 20])
def test_first_observations_are_those_of_the_latest_episodes(envs):
    """Until enough episodes have started, those of all environments; where too many start at once, some of them."""
    episodes = no_episodes(jnp.arange(envs, dtype=jnp.float32)[:, None], jnp.ones((envs, 1), bool))
    assert set(np.ravel(episodes.first_observation)) == set(range(min(envs, NUM_STARTS)))
    latest = []
    for t in range(1, 30):
        done, shown = np.arange(envs) % 3 != t % 3, 100.0 * t + np.arange(envs)
        zeros, times, mask = jnp.zeros((envs,)), jnp.full((envs,), t, jnp.int32), jnp.ones((envs, 1), bool)
        first = jnp.asarray(shown, jnp.float32)[:, None]
        episodes = compiled_add(episodes, zeros, zeros, times, jnp.asarray(done), first, mask, 1.0)
        latest += shown[done].tolist()[:NUM_STARTS]
    assert sorted(np.ravel(episodes.first_observation).tolist()) == latest[-NUM_STARTS:]
