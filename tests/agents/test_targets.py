"""Targets over several steps: segments from the replay buffer, how far they are followed, and the range of returns."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.episodes import FAR_OFF, Episodes, no_episodes
from riskpath.agents.learning import MARGIN, Lookahead, as_segment, look_ahead, new_state, step_of, within_returns
from riskpath.agents.replay_agent import ReplayAgent
from riskpath.agents.replay_buffer import add, gather, make_replay_buffer
from riskpath.nn.losses import midpoints
from riskpath.types import Segment, Transition, Window
from tests.agents import test_losses as losses
from tests.agents.clocks import START, clock_at

TRAINING = rp.Training(decay_starts=0.1, decay_ends=0.2)
NO, YES = False, True


def segment_of(
    actions: Any,
    rewards: Any = (),
    terminated: Any = (),
    truncated: Any = (),
    valid: Any = (),
    time: Any = (),
    so_far: Any = (),
) -> Segment:
    """Return a segment; what is not given is 1, 2, 4, … for rewards, and an episode that goes on from its start."""
    numbers = np.arange(len(actions), dtype=np.int32)  # of NumPy: each operation of JAX would be a program
    zeros = np.zeros(len(actions), np.float32)
    given = (
        jnp.asarray(numbers),
        jnp.asarray(actions, jnp.int32),
        jnp.asarray(rewards, jnp.float32) if len(rewards) else jnp.asarray(2.0**numbers, jnp.float32),
        jnp.asarray(numbers + 1),
        jnp.asarray(np.ones((len(actions), 3), bool)),
        jnp.asarray(terminated if len(terminated) else zeros, bool),
        jnp.asarray(truncated if len(truncated) else zeros, bool),
        jnp.asarray(time if len(time) else numbers, jnp.int32),
        jnp.asarray(so_far if len(so_far) else zeros, jnp.float32),
    )
    steps = jax.vmap(lambda *parts: Transition(*parts, extras=()))(*given)
    return Segment(steps, jnp.asarray(valid if len(valid) else numbers >= 0))


def together(parts: Any) -> Any:
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *parts)


def by_numpy(segment: Segment, best: np.ndarray, discount: float, most: int) -> tuple[int, float, float]:
    """Return the last step of the target, the rewards up to there, and the discount of what follows."""
    steps, valid = jax.device_get(segment.steps), np.asarray(segment.valid)
    last, earned = 0, float(steps.reward[0])
    while last + 1 < min(most, len(best)):
        over = steps.terminated[last] or steps.truncated[last]
        if over or not valid[last + 1] or (steps.action[last + 1] != best[last]).any():
            break
        last += 1
        earned += discount**last * float(steps.reward[last])
    return last, earned, 0.0 if steps.terminated[last] else discount ** (last + 1)


def as_numbers(ahead: Lookahead) -> tuple[int, float, float]:
    return int(ahead.last), float(ahead.reward), float(ahead.factor)


BEST = [1, 2, 0, 1]
FOLLOWS = [0, 1, 2, 0]
"""The stored actions, each of which is the best one after the step before it. The first one does not matter."""
HALF: dict[str, tuple[Segment, list[Any], int, tuple[int, float, float]]] = {
    # segment, best actions, gradient steps, and with a discount of ½ the last step, Σ ½ʲ 2ʲ, and the factor
    "follows to its end": (segment_of(FOLLOWS), BEST, 0, (3, 4.0, 1 / 16)),
    "the first action does not matter": (segment_of([2, 1, 2, 0]), BEST, 0, (3, 4.0, 1 / 16)),
    "cut at once by another action": (segment_of([0, 0, 2, 0]), BEST, 0, (0, 1.0, 1 / 2)),
    "cut later by another action": (segment_of([0, 1, 2, 1]), BEST, 0, (2, 3.0, 1 / 8)),
    "no way back after another action": (segment_of([0, 1, 1, 0]), BEST, 0, (1, 2.0, 1 / 4)),
    "ends with the episode": (segment_of(FOLLOWS, terminated=[NO, YES, NO, NO]), BEST, 0, (1, 2.0, 0.0)),
    "ends with the first step": (segment_of(FOLLOWS, terminated=[YES, NO, NO, NO]), BEST, 0, (0, 1.0, 0.0)),
    "an end beyond the cut": (segment_of([0, 1, 1, 0], terminated=[NO, NO, NO, YES]), BEST, 0, (1, 2.0, 1 / 4)),
    "bootstraps at truncation": (segment_of(FOLLOWS, truncated=[NO, NO, YES, NO]), BEST, 0, (2, 3.0, 1 / 8)),
    "a limit that is an end": (
        segment_of(FOLLOWS, terminated=[NO, YES, NO, NO], truncated=[NO, YES, NO, NO]),
        BEST,
        0,
        (1, 2.0, 0.0),
    ),
    "cut where nothing is stored": (segment_of(FOLLOWS, valid=[YES, YES, NO, NO]), BEST, 0, (1, 2.0, 1 / 4)),
    "only one step is stored": (segment_of(FOLLOWS, valid=[YES, NO, NO, NO]), BEST, 0, (0, 1.0, 1 / 2)),
    "one step is a segment": (segment_of([2]), [1], 0, (0, 1.0, 1 / 2)),
    "before learning rates fall": (segment_of(FOLLOWS), BEST, 100, (3, 4.0, 1 / 16)),
    "a little later": (segment_of(FOLLOWS), BEST, 101, (3, 4.0, 1 / 16)),
    "after a quarter": (segment_of(FOLLOWS), BEST, 125, (2, 3.0, 1 / 8)),
    "after a half": (segment_of(FOLLOWS), BEST, 150, (1, 2.0, 1 / 4)),
    "near the end": (segment_of(FOLLOWS), BEST, 190, (0, 1.0, 1 / 2)),
    "after all": (segment_of(FOLLOWS), BEST, 900, (0, 1.0, 1 / 2)),
    "two heads, both followed": (segment_of([[0, 0], [1, 2], [2, 1]]), [[1, 2], [2, 1], [0, 0]], 0, (2, 3.0, 1 / 8)),
    "two heads, one differs": (segment_of([[0, 0], [1, 2], [2, 0]]), [[1, 2], [2, 1], [0, 0]], 0, (1, 2.0, 1 / 4)),
    "two heads, the other differs": (segment_of([[0, 0], [0, 2], [2, 1]]), [[1, 2], [2, 1], [0, 0]], 0, (0, 1.0, 0.5)),
}


@pytest.mark.parametrize("case", HALF)
def test_a_target_goes_on_as_long_as_the_best_actions_were_taken(case):
    segment, best, updates, expected = HALF[case]
    agent = rp.IQN(discount=0.5, n_steps=len(best), training=TRAINING)
    ahead = look_ahead(agent, segment, jnp.asarray(best, jnp.int32), clock_at(updates / 1_000))
    assert as_numbers(ahead) == pytest.approx(expected)
    most = int(np.ceil(len(best) * (1 - np.clip((updates - 100) / 100, 0, 1))))
    assert by_numpy(segment, np.array(best), 0.5, max(most, 1)) == pytest.approx(expected)


def test_a_target_is_cut_where_an_episode_was_left_unfinished():
    agent, segment = rp.IQN(discount=0.5, training=TRAINING), segment_of(FOLLOWS, time=[7, 8, 0, 1])
    ahead = look_ahead(agent, segment, jnp.asarray(BEST, jnp.int32), START)
    assert as_numbers(ahead) == pytest.approx((1, 2.0, 1 / 4))


@pytest.mark.parametrize(
    ("discount", "heads"),
    [(0.9, ()), (1.0, (2,)), *(pytest.param(*case, marks=pytest.mark.long) for case in ((1.0, ()), (0.9, (2,))))],
)
def test_random_segments_are_followed_as_in_the_transcription(discount, heads):
    rng, count, length = np.random.default_rng(0), 300, 5
    best = rng.integers(2, size=(count, length, *heads))
    actions = np.where(rng.uniform(size=best.shape) < 0.2, rng.integers(2, size=best.shape), np.roll(best, 1, axis=1))
    over = rng.uniform(size=(2, count, length)) < 0.1
    stored = np.arange(length)[None, :] <= rng.integers(2 * length, size=(count, 1))
    rewards = rng.normal(size=(count, length)).astype(np.float32)
    segments = jax.vmap(segment_of)(actions, rewards, over[0], over[1], stored)
    shown = jax.device_get(segments)
    parts = [jax.tree.map(lambda x, i=i: x[i], shown) for i in range(count)]
    agent = rp.IQN(discount=discount, training=TRAINING)
    lasts = set()
    for done, most in ((0.0, 5), (0.15, 3), (1.0, 1)):
        ahead = jax.vmap(look_ahead, (None, 0, 0, None))(agent, segments, jnp.asarray(best, jnp.int32), clock_at(done))
        expected = np.array([by_numpy(part, best[i], discount, most) for i, part in enumerate(parts)])
        found = np.stack([np.asarray(x, float) for x in (ahead.last, ahead.reward, ahead.factor)], axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        lasts |= {(most, int(last)) for last in expected[:, 0]}
    assert {last for most, last in lasts if most == 5} == {0, 1, 2, 3, 4}
    assert {last for most, last in lasts if most == 1} == {0}


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_the_loss_of_iqn_over_several_steps_is_its_equation(taken):
    """The first `taken` actions after the first one are the best ones."""
    risk = rp.CVaR(0.3)
    agent = rp.IQN(risk, discount=0.9, network=losses.NETWORK, training=losses.TRAINING)
    state, other = (agent.init(losses.SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    levels = jnp.asarray(risk.distort(midpoints(7)))
    quantiles_of = losses.quantiles_of
    seen = (np.int32(1), np.int32(2), np.int32(3))
    best = np.array([int(np.argmax(quantiles_of(state.params, i, levels).mean(axis=0))) for i in seen])
    segment = segment_of([2, *((best[i] + (i >= taken)) % 3 for i in range(2))])
    last, earned, factor = by_numpy(segment, best, 0.9, 3)
    assert last == taken
    taus, target_taus = losses.levels(jax.random.key(5))
    future = quantiles_of(other.params, np.int32(last + 1), target_taus)[:, best[last]]
    predicted = quantiles_of(state.params, np.int32(0), taus)[:, 2]
    expected = losses.huber_by_hand(predicted, taus, 0.3 * earned + factor * future, 0.7 * 0.3)
    assert losses.loss_of(agent, state, segment, jax.random.key(5)) == pytest.approx(expected, rel=1e-4)


def test_samples_of_every_kind_are_about_their_first_step():
    segment = segment_of(FOLLOWS)
    step = step_of(segment)
    assert eqx.tree_equal(step, segment.first)
    assert as_segment(segment) is segment
    assert step_of(step) is step
    window = Window(step, jnp.zeros((2,), jnp.int32), jnp.zeros((2,), jnp.int32), jnp.ones((2,), bool))
    assert step_of(window) is step
    alone = as_segment(step)
    assert alone.valid.tolist() == [True]
    assert eqx.tree_equal(alone.first, step)
    batch = together([segment, segment_of([2, 1, 1, 1])])
    assert step_of(batch).action.tolist() == [0, 2]


# Segments from the replay buffer.
compiled_add, compiled_gather = eqx.filter_jit(add), eqx.filter_jit(gather)


def row(number: int, columns: int) -> Transition:
    """Return a row of the replay buffer: column c at moment `number` holds number · columns + c everywhere."""

    def one(whole: Any) -> Transition:
        exact, mask = whole.astype(jnp.float32), jnp.ones((2,), bool)
        return Transition(
            whole, whole % 5, exact, whole + 1, mask, ~mask[0], whole % 3 == 0, whole, exact / 16, exact / 4
        )

    return jax.vmap(one)(jnp.arange(columns, dtype=jnp.int32) + number * columns)


@pytest.mark.parametrize(
    ("rows", "steps"), [(1, 3), (11, 3), *(pytest.param(*sizes, marks=pytest.mark.long) for sizes in ((3, 2), (4, 6)))]
)
def test_segments_are_the_rows_that_follow_in_the_same_column(rows, steps):
    capacity, columns = 4, 2
    buffer = make_replay_buffer(jax.tree.map(lambda x: x[0], row(0, 1)), capacity, columns)
    for number in range(rows):
        buffer = compiled_add(buffer, row(number, columns))
    kept = list(range(rows))[-capacity:]
    ages, at = (x.astype(np.int32).reshape(columns, -1) for x in np.meshgrid(np.arange(len(kept)), range(columns)))
    found = compiled_gather(
        buffer, jnp.asarray(ages), jnp.asarray(at), 0, steps
    )  # as if each column had a lane of its own
    assert isinstance(found, Segment)
    assert found.valid.shape == (columns, len(kept), steps)
    for place in np.ndindex(ages.shape):
        age, column = ages[place], at[place]
        expected = [moment * columns + column for moment in kept[age : age + steps]]
        valid = np.asarray(found.valid[place])
        assert valid.tolist() == [i < len(expected) for i in range(steps)]
        one = jax.tree.map(lambda x, place=place, valid=valid: np.asarray(x[place])[valid], found.steps)
        for value in (one.observation, one.reward, one.time, 16 * one.return_so_far, 4 * one.extras):
            assert value.tolist() == expected
        assert one.next_observation.tolist() == [number + 1 for number in expected]
        assert one.action.tolist() == [number % 5 for number in expected]
        assert one.truncated.tolist() == [number % 3 == 0 for number in expected]
        assert one.reward.dtype == np.float32
        assert one.action.dtype == np.int32
    # One step is no segment.
    single = compiled_gather(buffer, jnp.asarray(ages), jnp.asarray(at), 0, 1)
    assert eqx.tree_equal(single, step_of(found))


# The range of returns.
nothing_seen = jax.jit(no_episodes)


def seen(low: float, high: float, unit: float, mean: float = 0.0, count: float = 9.0) -> Episodes:
    """Return the statistics of episodes with returns in this range."""
    given = {"low": low, "high": high, "unit": unit, "mean": mean, "count": count}
    episodes = nothing_seen(jnp.asarray(np.zeros((1, 1), np.float32)), jnp.asarray(np.ones((1, 1), bool)))
    return dataclasses.replace(episodes, **{name: jnp.float32(value) for name, value in given.items()})


FUTURE = np.array([-1e4, -3.0, -0.5, 0.0, 0.5, 3.0, 1e4], np.float32)
NEAR = seen(-6.0, 10.0, 2.0)
CLIPPED: dict[str, tuple[ReplayAgent, Episodes | None, tuple[float, float] | None]] = {
    # With returns from −6 to 10, a unit of 2 and 3 earned so far, a return to go from −9.4 to 7.4.
    "undiscounted": (rp.IQN(discount=1.0), NEAR, (-9.4 / 2, 7.4 / 2)),
    "given that a limit is an end": (rp.IQN(discount=0.5, bootstrap_at_limit=False), NEAR, (-37.6 / 2, 29.6 / 2)),
    "of the whole return, discounted": (rp.Adaptive(discount=0.5), NEAR, (-37.6 / 2, 29.6 / 2)),
    "of the whole return": (rp.Adaptive(), NEAR, (-9.4 / 2, 7.4 / 2)),
    "far off": (rp.Adaptive(), seen(-1e3, 1e3, 2.0, 4.0), (-(FAR_OFF - 0.3), FAR_OFF + 0.7)),
    "to go and discounted": (rp.IQN(discount=0.5), NEAR, None),
    "a limit is no end": (rp.IQN(discount=1.0, bootstrap_at_limit=True), NEAR, None),
    "a limit is no end of the whole return": (rp.Adaptive(bootstrap_at_limit=True), NEAR, None),
    "no episodes": (rp.IQN(discount=1.0), None, None),
    "no episode has finished": (rp.IQN(discount=1.0), seen(np.inf, -np.inf, 2.0, count=0.0), None),
}


@pytest.mark.parametrize("case", CLIPPED)
def test_predictions_stay_near_the_returns_seen_where_a_limit_ends_the_return(case):
    assert MARGIN == 0.2
    agent, episodes, bounds = CLIPPED[case]
    # The target's last step is the second one, at time 1; what a third one says does not matter.
    segment = segment_of([0, 1, 2], so_far=[1.0, 3.0, 1e6])
    ahead = Lookahead(jnp.int32(1), jnp.zeros(()), jnp.ones(()))
    state = dataclasses.replace(new_state(agent, ()), episodes=episodes)
    found = within_returns(agent, state, segment, ahead, jnp.asarray(FUTURE))
    np.testing.assert_allclose(found, FUTURE if bounds is None else np.clip(FUTURE, *bounds), rtol=1e-6)


@pytest.mark.parametrize("reward_scale", [None, 0.1])
def test_the_range_is_counted_in_the_unit_of_the_critic(reward_scale):
    agent = rp.IQN(discount=1.0, training=rp.Training(reward_scale=reward_scale))
    unit = 2.0 if reward_scale is None else 1 / reward_scale
    state = dataclasses.replace(new_state(agent, ()), episodes=NEAR)
    ahead = Lookahead(jnp.int32(0), jnp.zeros(()), jnp.ones(()))
    found = within_returns(agent, state, segment_of([0], so_far=[3.0]), ahead, jnp.asarray(FUTURE))
    expected = np.clip(FUTURE, (-6 - 3) / unit - MARGIN, (10 - 3) / unit + MARGIN)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("discount", "time", "so_far"),
    [
        (0.5, 20, 13.0),  # the best episode so far, not finished: 13 are more than 10 and a margin of 0.4
        (0.5, 20, -9.0),
        (1.0, 20, -100.0),  # a catastrophe beyond `FAR_OFF` units, after which the episode goes on
    ],
)
def test_a_prediction_is_only_moved_towards_0(discount, time, so_far):
    agent, episodes = rp.Adaptive(discount=discount), seen(-100.0, 10.0, 2.0) if discount == 1.0 else NEAR
    state = dataclasses.replace(new_state(agent, ()), episodes=episodes)
    segment = segment_of([0], time=[time], so_far=[so_far])
    ahead = Lookahead(jnp.int32(0), jnp.zeros(()), jnp.ones(()))
    found = np.asarray(within_returns(agent, state, segment, ahead, jnp.asarray(FUTURE)))
    assert (np.abs(found) <= np.abs(FUTURE)).all(), found
    assert (np.sign(found) * np.sign(FUTURE) >= 0).all()
