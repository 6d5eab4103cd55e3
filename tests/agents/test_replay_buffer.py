"""The replay ring against a slow reference that keeps whole episodes in lists."""

import functools
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import riskpath as rp
from riskpath.agents.replay_buffer import add, gather, make_replay_buffer, sample_indices
from riskpath.training import fused_loop as loop
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start
from riskpath.types import Transition, Window


@functools.partial(jax.jit, static_argnums=2)
def step(obs: Any, time: Any, columns: int) -> Transition:
    """A row whose numbers say where it came from: column c at moment `obs` holds obs · columns + c."""

    def one(number):
        mask, exact = jnp.array([False, True]), number.astype(jnp.float32)
        when = jnp.asarray(time, jnp.int32)
        return Transition(
            number, number % 5, exact / 8, number + 1, mask, mask[1], mask[0], when, exact / 16, exact / 4
        )

    return jax.vmap(one)(jnp.arange(columns, dtype=jnp.int32) + obs * columns)


compiled_add, compiled_gather = eqx.filter_jit(add), eqx.filter_jit(gather)


def example() -> Transition:
    return jax.tree.map(lambda x: x[0], step(0, 0, 1))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    sizes=st.sampled_from([(2, 1, 1), (2, 3, 3), (5, 3, 1), (5, 6, 3), (20, 1, 3), (20, 6, 1)]),
)
def test_windows_equal_a_slow_reference(lengths, sizes):
    buffer_size, window, columns = sizes  # few, as each is compiled
    ring = make_replay_buffer(example(), buffer_size, columns)
    rows: list[tuple[int, int]] = []  # (moment, time in its episode), oldest first
    for length in lengths:
        for time in range(length):
            ring = compiled_add(ring, step(len(rows), time, columns))
            rows.append((len(rows), time))
    kept = rows[-buffer_size:]
    every = np.minimum(np.arange(buffer_size), len(kept) - 1)  # as many for a ring that is not yet full
    ages, at = (x.astype(np.int32).ravel() for x in np.meshgrid(every, np.arange(columns)))
    sample = compiled_gather(ring, jnp.asarray(ages[None]), jnp.asarray(at[None]), window)
    assert isinstance(sample, Window)
    sample = jax.tree.map(np.asarray, sample)
    for i, (age, column) in enumerate(zip(ages.tolist(), at.tolist(), strict=True)):
        moment, time = kept[age]
        episode = [j for j in range(age + 1) if j >= age - time][-window:]
        expected = [kept[j][0] * columns + column for j in episode]
        valid = sample.valid[0, i]
        assert valid.tolist() == [False] * (window - len(expected)) + [True] * len(expected)
        assert sample.observation[0, i][valid].tolist() == expected
        assert sample.prev_action[0, i][valid][1:].tolist() == [number % 5 for number in expected[:-1]]
        assert int(sample.transition.observation[0, i]) == moment * columns + column


def test_packing_loses_nothing():
    ring = compiled_add(make_replay_buffer(example(), 3, 2), row := step(70_000, 3, 2))
    back = compiled_gather(ring, jnp.zeros((1, 2), jnp.int32), jnp.array([[0, 1]], jnp.int32), 0)
    for got, given_ in zip(jax.tree.leaves(back), jax.tree.leaves(row), strict=True):
        assert got.dtype == given_.dtype
        np.testing.assert_array_equal(got[0], given_)


def test_samples_come_from_the_own_lane_and_from_all_of_it():
    ring = make_replay_buffer(example(), 8, 6)
    for moment in range(11):
        ring = compiled_add(ring, step(moment, moment, 6))
    keys = jax.random.split(jax.random.key(0), 3)
    ages, columns = (np.asarray(x) for x in eqx.filter_jit(sample_indices)(ring, 3, 500, keys))
    for lane in range(3):
        assert set(columns[lane].tolist()) == {2 * lane, 2 * lane + 1}
        assert set(ages[lane].tolist()) == set(range(8))
    oldest = compiled_gather(ring, jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), jnp.int32), 0)
    assert int(oldest.observation[0, 0]) == 3 * 6


@pytest.mark.parametrize(
    "agent", [rp.IQN(rp.CVaR(0.25)), pytest.param(rp.TQL(rp.CVaR(0.25)), marks=pytest.mark.long)], ids=["IQN", "TQL"]
)
def test_the_ring_is_not_copied_inside_the_loop(agent, unchecked):
    small = rp.Training(
        buffer_size=997,
        batch_size=4,
        num_quantiles=4,
        num_target_quantiles=4,
        num_action_quantiles=4,
        target_update_interval=3,
    )
    agent = eqx.tree_at(lambda a: (a.network, a.training), agent, (rp.Network(hidden=(8,)), small))
    world = as_environment("RiskyGrid")
    state = start([agent], [world], 3, 1, 0)
    lowered = loop.chunk.lower(state, world.spec, jnp.int32(2)).lowered  # pyright: ignore[reportFunctionMemberAccess]
    text = lowered.compile().as_text()
    shape = "f32[" + ",".join(map(str, state.store.rows.shape)) + "]"
    assert shape in text
    main = text[text.index("ENTRY ") :]
    inside = text[: text.index("ENTRY ")]
    copies = [line for line in inside.splitlines() if " copy(" in line and shape in line.split(" copy(")[0]]
    assert copies == []
    assert main.count(f"{shape}{{2,1,0}} copy(") <= 1  # the caller keeps the state it passed in
