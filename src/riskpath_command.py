"""The command `riskpath`. It is not in the package, whose imports take seconds, so Ctrl-C during them is one line."""

import os
import signal
import sys


def main() -> None:
    """Import the package and run a command."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background
    if heard:
        signal.signal(signal.SIGINT, _stop)
    from riskpath.cli.main import main as run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _stop(*_: object) -> None:
    """End the process at once: compiled modules that are being imported do not bear an exception."""
    print("riskpath: interrupted", file=sys.stderr, flush=True)
    os._exit(130)


if __name__ == "__main__":
    main()
