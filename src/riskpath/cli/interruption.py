"""Ctrl-C and SIGTERM end a command within seconds, also while a program is being compiled or runs for long.

Python handles a signal between two of its own steps, and a compilation is one step, which may take a minute. So a
thread watches for signals. If the main thread does not move for `PATIENCE` seconds after one, it saves what there is to
save and ends the process. Where a signal arrives in a finaliser or in a callback of the garbage collector, and JAX has
such a callback, Python drops the exception: the signal is then sent again.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 1.5
"""Seconds for which the main thread may stand still after a signal."""
AGAIN = 0.05
"""Seconds after which a signal is sent again whose exception was dropped."""
STATUS = 130
_LAST: list[Callable[[], str]] = []
"""What is done before the process is ended, the innermost command last; each returns a line for the user."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, and let both end what is done in this context, whatever it is."""
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread only
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    sigterm = signal.signal(signal.SIGTERM, _as_ctrl_c)
    wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    unraisable, sys.unraisablehook = sys.unraisablehook, _send_again
    threading.Thread(target=_watch, args=(read, threading.get_ident()), daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, sigterm)
        os.close(write)  # ends the thread


@contextlib.contextmanager
def last_words(function: Callable[[], str]) -> Iterator[None]:
    """Call a function if a signal ends the process in this context; it saves what there is and returns a line."""
    _LAST.append(function)
    try:
        yield
    finally:
        _LAST.remove(function)


def _as_ctrl_c(*_: object) -> None:
    """Act like Ctrl-C, also in a background process, which ignores Ctrl-C itself."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _send_again(dropped: Any) -> None:
    """Send a signal again, after its exception was dropped; report any other exception."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
    else:
        threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGTERM)).start()


def _watch(read: int, main: int) -> None:
    """End the process if the main thread stands still after a signal."""
    while numbers := os.read(read, 100):
        place, ends = _place(main), time.monotonic() + PATIENCE
        if {signal.SIGTERM, signal.SIGINT}.isdisjoint(numbers):
            continue
        while (still := _place(main) == place) and time.monotonic() < ends:
            time.sleep(0.05)
        line = "interrupted"
        with contextlib.suppress(Exception):
            line = _LAST[-1]() if still and _LAST else line
        if _place(main) == place:
            shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a bar hides the cursor
            print(f"{shown}riskpath: {line}", file=sys.stderr, flush=True)
            os._exit(STATUS)
    os.close(read)


def _place(main: int) -> Any:
    """Return where the main thread is in the code."""
    frame = sys._current_frames().get(main)
    return frame and (id(frame), frame.f_lasti)
