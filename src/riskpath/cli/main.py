"""The entry point of the command line. A user's mistake ends in one line and exit status 2."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from riskpath.cli.interruption import STATUS, interruptible
from riskpath.errors import RiskpathError, one_line
from riskpath.extras import EXTRAS
from riskpath.version import __version__


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with status 2 after one line if the user made a mistake."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"riskpath {__version__}")
        return
    try:
        with interruptible():
            _read(arguments or ["--help"])()
    except RiskpathError as error:
        _fail(str(error))
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "interrupted", status=STATUS)
    except ModuleNotFoundError as error:
        extra = next((extra for extra, packages in EXTRAS.items() if error.name in packages), None)
        if extra is None:
            raise
        _fail(f"{error.name} is not installed: pip install 'riskpath[{extra}]'")
    except BrokenPipeError:  # the reader of our output has closed it, for example `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # for example a name that is too long, or a folder that nobody may read
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else one_line(error))


def _read(arguments: list[str]) -> Callable[[], None]:
    """Return the command and its arguments from the command line."""
    from riskpath.cli.parser import parse  # the imports take seconds

    command = parse(arguments)
    use_compilation_cache()
    return command


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that only the first run of each kind compiles.

    A folder that the user has set, for example by JAX_COMPILATION_CACHE_DIR, is left as it is.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "riskpath" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"riskpath: {message}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
