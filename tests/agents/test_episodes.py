"""Statistics of episodes against NumPy, for every course that training can take."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.agents.episodes import MAX_COUNT, NUM_STARTS, REACH, Episodes, no_episodes

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
def watch_one(rewards: Any, ends: Any, discount: Any) -> Episodes:
    """Return the statistics as the training loop keeps them."""
    shown = (jnp.zeros((ENVS, 1)), jnp.ones((ENVS, 1), bool))

    def step(carry: Any, now: Any) -> Any:
        (episodes, so_far, weight), (reward, end) = carry, now
        so_far = so_far + weight * reward
        episodes = episodes.add(reward, so_far, end, *shown, discount)
        return (episodes, jnp.where(end, 0.0, so_far), jnp.where(end, 1.0, discount * weight)), None

    start = (no_episodes(*shown), jnp.zeros((ENVS,)), jnp.ones((ENVS,)))
    return jax.lax.scan(step, start, (rewards, ends))[0][0]


def watch(case: str, factor: float = 1.0) -> Episodes:
    """Return the statistics of one case."""
    rewards, ends, discount = CASES[case]
    return watch_one(jnp.asarray(factor * rewards, jnp.float32), jnp.asarray(ends), jnp.asarray(discount))


def by_numpy(rewards: np.ndarray, ends: np.ndarray, discount: float) -> tuple[np.ndarray, float]:
    """Return the returns of all finished episodes, and the largest Σ γ^{t−i} r_i."""
    returns, largest = [], 0.0
    for reward, end in zip(rewards.T.astype(np.float64), ends.T, strict=True):
        start = 0
        for stop in range(1, len(reward) + 1):
            part = reward[start:stop]
            largest = max(largest, abs(np.sum(part[::-1] * discount ** np.arange(len(part)))))
            if end[stop - 1]:
                returns.append(np.sum(part * discount ** np.arange(len(part))))
                start = stop
    return np.array(returns), largest


@pytest.mark.parametrize("case", CASES)
def test_statistics_equal_those_of_numpy(case):
    episodes, (returns, largest) = watch(case), by_numpy(*CASES[case])
    assert float(episodes.count) == len(returns) == int(episodes.num_starts)
    deviation = returns.std() if len(returns) else 0.0
    spread = max(deviation, largest / REACH) or 1.0
    size = np.abs(returns).max(initial=0.0)
    found = [float(x) for x in (episodes.deviation, episodes.largest, episodes.spread)]
    assert found == pytest.approx([deviation, largest, spread], rel=1e-4, abs=1e-6 * size)
    if len(returns):
        summary = [float(x) for x in (episodes.mean, episodes.low, episodes.high)]
        assert summary == pytest.approx([returns.mean(), returns.min(), returns.max()], rel=1e-5, abs=1e-5 * size)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [1024.0, 2.0**-10])
def test_a_power_of_two_multiplies_them_exactly(case, factor):
    one, other = watch(case), watch(case, factor)
    for name in ("mean", "deviation", "low", "high", "largest", "recent"):
        np.testing.assert_array_equal(factor * getattr(one, name), getattr(other, name))
    unit = factor if CASES[case][0].any() else 1.0  # where all is 0 there is no unit
    assert float(other.spread) == unit * float(one.spread)


def test_many_episodes_count_as_a_thousand():
    """Later ones are then still noticed."""
    few = no_episodes(jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
    shown = (jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
    many = Episodes(**{**vars(few), "count": jnp.asarray(MAX_COUNT), "deviation": jnp.asarray(1.0)})
    for _ in range(4):
        far = jnp.array([MAX_COUNT**0.5])  # adds 1 to the variance
        many = many.add(far, far, jnp.array([True]), *shown, 1.0)
    assert float(many.count) == MAX_COUNT
    assert float(many.deviation) == pytest.approx(np.sqrt(1 + 4), rel=1e-2)


@pytest.mark.parametrize("envs", [1, 3, 20])
def test_first_observations_are_those_of_the_latest_episodes(envs):
    """Until enough episodes have started, those of all environments; where too many start at once, some of them."""
    episodes = no_episodes(jnp.arange(envs, dtype=jnp.float32)[:, None], jnp.ones((envs, 1), bool))
    assert set(np.ravel(episodes.first_observation)) == set(range(min(envs, NUM_STARTS)))
    latest = []
    for t in range(1, 30):
        done, shown = np.arange(envs) % 3 != t % 3, 100.0 * t + np.arange(envs)
        zeros, mask = jnp.zeros((envs,)), jnp.ones((envs, 1), bool)
        first = jnp.asarray(shown, jnp.float32)[:, None]
        episodes = episodes.add(zeros, zeros, jnp.asarray(done), first, mask, 1.0)
        latest += shown[done].tolist()[:NUM_STARTS]
    assert sorted(np.ravel(episodes.first_observation).tolist()) == latest[-NUM_STARTS:]
