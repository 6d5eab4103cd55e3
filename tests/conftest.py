"""Settings of every test, as strict as Equinox' own, and two fixtures that loosen one of them."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jaxtyping
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True, scope="module")
def room() -> Iterator[None]:
    """Compiled programs are let go when there are many: a process may hold only so many pieces of memory."""
    yield
    pieces = Path("/proc/self/maps")  # Linux allows 65,530, and JAX crashes beyond
    if not pieces.exists() or len(pieces.read_bytes().splitlines()) > 25_000:
        jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit JAX for one test."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No run-time type checks for one test: a wrong input meets the library's own message, as it does for users."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
