"""RunningStatistics of episodes against NumPy, for every course that training can take."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.agents.episodes import EARLY, FADING, NUM_STARTS, REACH, STEP, Episodes, no_episodes

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
        past, known = step / (FADING + 1), size > 0
        size = np.sqrt((past * size**2 + np.mean(row**2)) / (past + 1))
        mean, deviation = faded(groups[: step + 1])
        now = max(deviation, size / REACH)
        if now > 0 and not (known and 1 / STEP < now / spread < STEP):
            spread = now
    largest = np.abs(returns).max(initial=0.0)
    found = [float(x) for x in (episodes.deviation, episodes.size, episodes.spread)]
    assert found == pytest.approx([deviation, size, spread], rel=1e-4, abs=1e-6 * largest)
    if len(returns):
        summary = [float(x) for x in (episodes.mean, episodes.low, episodes.high)]
        assert summary == pytest.approx([mean, returns.min(), returns.max()], rel=1e-5, abs=1e-5 * largest)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [1024.0, 2.0**-10])
def test_a_power_of_two_multiplies_them_exactly(case, factor):
    one, other = watch(case), watch(case, factor)
    for name in ("mean", "deviation", "low", "high", "size", "recent"):
        np.testing.assert_array_equal(factor * getattr(one, name), getattr(other, name))
    assert float(one.repeats) == float(other.repeats)
    unit = factor if CASES[case][0].any() else 1.0  # where all is 0 there is no unit
    assert float(other.spread) == unit * float(one.spread)


@pytest.mark.parametrize(("values", "share"), [(1, 1.0), (4, 0.25), (10**6, 0.0)])
def test_it_counts_how_often_early_returns_repeat(values, share):
    rewards = np.random.default_rng(0).integers(values, size=(2 * EARLY // ENVS, ENVS)) / 10
    rewards[EARLY // ENVS :] = 7.0  # later returns are all the same
    episodes = watch_one(jnp.asarray(rewards, jnp.float32), jnp.ones(rewards.shape, bool), jnp.asarray(1.0))
    assert float(episodes.repeats) == pytest.approx(share, abs=0.05)


def test_early_exploration_fades_and_the_unit_settles():
    """100 wild episodes, then 900 calm ones: the unit is that of the calm ones, and changes slowly in the end."""
    rng = np.random.default_rng(0)
    rewards = np.concatenate([100 * rng.normal(size=(100, ENVS)), rng.normal(size=(900, ENVS))])
    ends = np.ones(rewards.shape, bool)
    both = [(jnp.asarray(rewards[:n], jnp.float32), jnp.asarray(ends[:n])) for n in (980, 1000)]
    watched = [watch_one(*one, jnp.asarray(1.0)) for one in both]
    before, after = (float(episodes.spread) for episodes in watched)
    assert before == after == pytest.approx(1.0, rel=0.5)


def test_the_unit_stays_once_learning_has_settled():
    """It follows calmer episodes only while critics can learn anew; a first unit is taken at any time."""
    ends, shown = jnp.ones((ENVS,), bool), (jnp.zeros((ENVS, 1)), jnp.ones((ENVS, 1), bool))
    noise = 100 * np.random.default_rng(0).normal(size=(60, ENVS)).astype(np.float32)
    rewards = jnp.asarray(np.concatenate([noise[:10], noise[10:] / 100]))
    units = {}
    for settled in (False, True):
        episodes = no_episodes(*shown)
        for step, reward in enumerate(rewards):
            episodes = episodes.add(reward, reward, ends, *shown, 1.0, settled and step > 10)
        units[settled] = float(episodes.spread)
    assert units[False] < 10 < 50 < units[True]
    late = no_episodes(*shown).add(rewards[0], rewards[0], ends, *shown, 1.0, True)
    assert float(late.spread) == pytest.approx(float(np.std(noise[0])), rel=1e-5)


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
