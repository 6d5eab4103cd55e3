"""Settings of every test, as strict as Equinox' own, and fixtures that change one of them."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Programs are shared between the processes of a test run and between test runs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # tests do not debug programs

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


SLOWEST = (
    *("test_docs", "test_adaptive", "test_adaptive_ppo", "test_ppo", "test_host_loop", "test_floored_goals"),
    *("test_train", "test_run_commands", "test_predictor", "test_searched_measures", "test_checkpoint"),
    *("test_losses", "test_dataset", "test_selection", "test_measures", "test_brackets", "test_exported_policy"),
    *("test_targets", "test_critics", "test_observation_encoder", "test_units", "test_gpu", "test_ray_vector"),
    *("test_qrsrm", "test_evaluation", "test_replay_buffer", "test_public_tasks", "test_rivals"),
    *("test_table_policy", "test_solver", "test_learned_policy", "test_agent", "test_rollout", "test_bench"),
    *("test_demo", "test_extras", "test_market", "test_other_measures", "test_server", "test_bad_input"),
)
"""Files that take longest, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first, so that two processes end at about the same time."""
    order = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the modules and tests: tracing makes it run often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True, scope="module")
def release_programs() -> Iterator[None]:
    """Release compiled programs when there are many: Linux limits the memory maps of a process to 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > 40_000:
        jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """Use 64-bit JAX in one test."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@contextmanager
def compiled_as_users() -> Iterator[None]:
    """Compile with all optimisations, also where `make test` leaves most of them out: for tests about bits.

    The flags of XLA that `make test` sets cannot be changed in a process; `make test-long` sets none.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def as_users() -> Iterator[None]:
    """Compile the programs of one test as users do."""
    with compiled_as_users():
        yield


@contextmanager
def without_checks() -> Iterator[None]:
    """Switch off run-time type checks: wrong input then meets the library's own message, and tracing is faster."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch off run-time type checks in one test."""
    with without_checks():
        yield


@pytest.fixture(scope="module")
def unchecked_module() -> Iterator[None]:
    """Switch them off in a whole file, whose agents have their shapes checked in other files."""
    with without_checks():
        yield


@contextmanager
def without_training() -> Iterator[None]:
    """Let training count its steps and do nothing else, so that no program that learns is compiled.

    Candidates that have learned nothing are compared in a few episodes.
    """
    from riskpath.training import fused_loop, host_loop, selection  # here, where its types are checked
    from riskpath.training.rounds import Part

    def steps_only(lanes: Any, steps: Any) -> Any:
        return eqx.tree_at(lambda s: s.steps, lanes, lanes.steps + steps)

    def chunk(lanes: Any, spec: Any, rounds: Any) -> Any:
        return steps_only(lanes, rounds * lanes.round.steps), {"loss": jnp.zeros(lanes.count)}

    def advance(lanes: Any, vector: Any, spec: Any, steps: int, chunk: int, begin: int | None = None) -> Iterator[Any]:
        yield Part(steps_only(lanes, steps), {"loss": jnp.zeros(lanes.count)}, True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_loop, "warm_up", lambda lanes, spec, moves: (steps_only(lanes, moves * lanes.num_envs), {}))
        patch.setattr(fused_loop, "chunk", chunk)
        patch.setattr(host_loop, "advance", advance)
        patch.setattr(selection, "FEWEST", 10)
        patch.setattr(selection, "MOST", 20)
        yield


@pytest.fixture
def untrained() -> Iterator[None]:
    """Train nothing in one test."""
    with without_training():
        yield
