"""Settings of every test, as strict as Equinox' own, and fixtures that change one of them."""

import functools
import gc
import importlib.metadata
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Most programs here run only for a moment: they are compiled without optimisations (the fixture `optimised` switches
# them on), and are shared between the processes of a test run and between test runs.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# XLA's older way to compile fused loops for the CPU takes half the time, but rounds differently; one piece of machine
# code for a program and no passes that only make loops faster save a quarter of the rest (`as_users` has all as
# usual). JAX reads this when it is first imported, and ends if it does not know a flag: 0.11 does not.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_disable_hlo_passes="
    "simplify-while-loops,while-loop-invariant-code-motion,while-loop-constant-sinking"
    if importlib.metadata.version("jaxlib").startswith("0.10.")
    else ""
)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import pytest
from jax._src import compilation_cache, compiler
from jax._src.interpreters import mlir

USUAL_LOOPS: dict[str, Any] = (
    {"xla_cpu_use_fusion_emitters": True, "xla_disable_hlo_passes": ""}
    if "fusion_emitters" in os.environ["XLA_FLAGS"]
    else {}
)
"""Compiler options that undo the flags above, except for the pieces of machine code: they change no numbers."""
USUAL_PASSES = {"xla_disable_hlo_passes": ""} if USUAL_LOOPS else {}
"""Those of them that decide where arrays are copied."""
mlir.make_ir_context = functools.cache(mlir.make_ir_context)  # making one takes as long as lowering a small program


def draw_with_loops(loops: bool) -> None:
    """Let programs compute random numbers with loops, as usual on a CPU, or without: the same bits, sooner compiled."""
    if USUAL_LOOPS:
        from jax._src.random import threefry2x32 as of

        rule = of._threefry2x32_cpu_lowering_rule if loops else of._threefry2x32_lowering_rule
        mlir.register_lowering(of.threefry2x32_p, rule, platform="cpu")


draw_with_loops(False)
quick: Any = SimpleNamespace(compress=lambda x: zlib.compress(x, 1), decompress=zlib.decompress)
compilation_cache.__dict__["zlib"] = quick  # it takes half the time
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


SLOWEST = (
    *("test_host_loop", "test_adaptive", "test_train", "test_docs", "test_grid_brackets", "test_selection"),
    *("test_run_commands", "test_losses", "test_grid_solver", "test_observation_encoder", "test_checkpoint"),
    *("test_predictor", "test_critics", "test_market", "test_actor_critic", "test_qrsrm", "test_exported_policy"),
    *("test_agent", "test_evaluation", "test_extras", "test_demo"),
)
"""Files that take longest."""


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


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch off run-time type checks in one test: wrong input then meets the library's own message."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@contextmanager
def compiler_options(options: dict[str, Any]) -> Iterator[None]:
    """Compile programs with other options of XLA. Programs in memory are not compiled again."""
    original = compiler.get_compile_options

    def get_compile_options(*args: Any, env_options_overrides: Any = None, **others: Any) -> Any:
        return original(*args, env_options_overrides={**options, **(env_options_overrides or {})}, **others)

    compiler.get_compile_options = get_compile_options
    try:
        yield
    finally:
        compiler.get_compile_options = original


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimise the programs that learn, for a long run. They may serve other tests: they are only faster.

    The first level takes half the time of the usual third one to compile, and the programs are nearly as fast.
    """
    from riskpath.training import fused_loop, host_loop  # here, where its types are checked

    def optimise(program: Any) -> Any:
        def run(*args: Any) -> Any:
            with compiler_options({"xla_backend_optimization_level": 1}):
                return program(*args)

        return run

    monkeypatch.setattr(fused_loop, "chunk", optimise(fused_loop.chunk))
    monkeypatch.setattr(host_loop, "_turn", optimise(host_loop._turn))


@contextmanager
def without_training() -> Iterator[None]:
    """Let training count its steps and do nothing else, so that no program that learns is compiled."""
    from riskpath.training import fused_loop, host_loop  # here, where its types are checked

    def steps_only(lanes: Any, steps: Any) -> Any:
        return eqx.tree_at(lambda s: s.steps, lanes, lanes.steps + steps)

    def chunk(lanes: Any, spec: Any, rounds: Any) -> Any:
        each = fused_loop.steps_per_round(lanes.agent, lanes.experience, lanes.num_envs)
        return steps_only(lanes, rounds * each), {"loss": jnp.zeros(lanes.count)}

    def advance(lanes: Any, vector: Any, spec: Any, steps: int, rounds: int) -> Iterator[Any]:
        yield steps_only(lanes, steps), {"loss": jnp.zeros(lanes.count)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_loop, "warm_up", lambda lanes, spec, moves: steps_only(lanes, moves * lanes.num_envs))
        patch.setattr(fused_loop, "chunk", chunk)
        patch.setattr(host_loop, "advance", advance)
        yield


@pytest.fixture
def untrained() -> Iterator[None]:
    """Train nothing in one test."""
    with without_training():
        yield


@contextmanager
def as_users() -> Iterator[None]:
    """Compile programs exactly as users do, for a test about bits: they depend on how loops are fused."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    draw_with_loops(True)
    try:
        with compiler_options(USUAL_LOOPS):
            yield
    finally:
        draw_with_loops(False)
        jax.config.update("jax_disable_most_optimizations", before)
