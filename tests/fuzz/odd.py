"""Values that a user could pass by mistake, and what a call may do with them: answer, or refuse in one line."""

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import strategies as st

from riskpath.errors import RiskpathError

CPU_SECONDS, SECONDS = 10.0, 120.0
"""A call may take this long; the second limit is for calls that wait, on a machine that is busy."""

WORDS = [
    "",
    " ",
    "mean",
    "cvar:0.1",
    "cvar:nan",
    "0.5*mean+0.5*cvar:0.1",
    "a\nb",
    "ä\0",
    "../x",
    "~",
    "ThreeState",
    "1e5",
    "-1",
]
NUMBERS = st.one_of(
    st.integers(-2, 1),
    st.sampled_from([2**31, 2**53 + 1, 2**63, 10**18, 10**400, -(10**9)]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e300, 0.1, 0.5, 1.0, math.nan, math.inf, -math.inf]),
)
TEXTS = st.one_of(st.sampled_from(WORDS), st.text(max_size=8))
ODD = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    st.binary(max_size=3),
    st.lists(NUMBERS, max_size=3),
    st.tuples(NUMBERS, NUMBERS),
    st.dictionaries(TEXTS, NUMBERS, max_size=2),
    st.sampled_from([np.float32(0.5), np.int8(3), np.array([1.0, 2.0]), np.float64("nan"), 1 + 2j, object, Ellipsis]),
)
"""Anything."""


class TooLong(BaseException):
    """A call that does not end."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise `TooLong` in a call that does not end in time."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def answer_or_line(call: Callable[[], Any]) -> Any:
    """Return what a call answers; None if it refuses in one line. Anything else is a fault."""
    with time_limit():
        try:
            return call()
        except RiskpathError as refused:
            line = str(refused)
            assert line, "an empty message"
            assert "\n" not in line, line
            assert len(line) < 2_000, line
            return None
