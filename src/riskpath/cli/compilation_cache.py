"""JAX's compilation cache on disk, which the command line turns on for its own process."""

from pathlib import Path

import jax


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that only the first run of each kind compiles.

    A folder that the user has set, for example by JAX_COMPILATION_CACHE_DIR, is left as it is.
    """
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "riskpath" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
