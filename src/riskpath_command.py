"""The command `riskpath`. It is not in the package, whose imports take seconds, so Ctrl-C during them is one line."""

import atexit
import contextlib
import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Import the package and run a command."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background
    if heard:
        signal.signal(signal.SIGINT, _stop)
    ended: list[object] = []
    atexit.register(_leave, ended)  # as the first one, so that it is called last
    from riskpath.cli.main import main as run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except SystemExit as stop:
        ended.append(stop.code)
        raise


def _stop(*_: object) -> None:
    """End the process at once: compiled modules that are being imported do not bear an exception."""
    print("riskpath: interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _leave(ended: list[object]) -> None:
    """Leave out the last part of the end after an interruption: LLVM does not bear it while a program is compiled."""
    if INTERRUPTED in ended:
        with contextlib.suppress(OSError):  # its reader may have ended, too
            sys.stdout.flush()
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
