"""Episodes of clients as sessions: limited in number, and forgotten when no request comes.

The memories of all episodes of a policy are rows of few arrays, so that a batch of requests reads and writes them at
once. The arrays have their full length from the start; the operating system provides memory for rows that were used,
and the row that was freed last is used first. Therefore memory follows the largest number of episodes at a time.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError


class Unavailable(Exception):
    """A session cannot be had now; `status` is the code of HTTP."""

    def __init__(self, status: int, line: str):
        super().__init__(line)
        self.status = status


@dataclass(slots=True)
class Session:
    """One episode."""

    key: str
    """Its name, which cannot be guessed."""
    row: int
    """Where its memory is."""
    used: float
    """The time of the last request."""
    steps: int = 0
    """Actions so far."""
    busy: bool = False
    """Whether a request is being answered."""
    action: Any = None
    """The last action, for a client that repeats its request."""


class Sessions:
    """The episodes of one policy."""

    def __init__(
        self,
        memory: Sequence[np.ndarray | np.generic],
        most: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Prepare for at most `most` episodes with such memories; one expires after some `seconds` without requests."""
        self.most, self.seconds, self._clock = most, seconds, clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the one that waits longest is first
        self._free: list[int] = []
        self._rows = 0  # that were ever used
        try:
            self._memory = [np.zeros((most, *leaf.shape), leaf.dtype) for leaf in memory]
        except MemoryError:
            each = sum(leaf.nbytes for leaf in memory)
            raise RiskpathError(f"{most:,} episodes of {each:,} bytes do not fit into memory: allow fewer") from None
        self.expired = 0
        """Episodes that were forgotten."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self) -> Session:
        """Return a new session, which is busy."""
        self._expire()
        if len(self._sessions) >= self.most:
            raise Unavailable(503, f"there are {self.most:,} episodes already: end some, or wait until they expire")
        if self._free:
            row = self._free.pop()
        else:
            row, self._rows = self._rows, self._rows + 1
        session = Session(secrets.token_urlsafe(12), row, self._clock(), busy=True)
        self._sessions[session.key] = session
        return session

    def take(self, key: str) -> Session:
        """Return a session, which is busy from now on."""
        self._expire()
        session = self._sessions.get(key)
        if session is None:
            raise Unavailable(404, "there is no such episode, or it has expired: begin a new one")
        if session.busy:
            raise Unavailable(409, "another request of this episode is being answered")
        session.busy = True
        return session

    def release(self, session: Session) -> None:
        """Let a session wait for its next request."""
        session.busy, session.used = False, self._clock()
        self._sessions.move_to_end(session.key)

    def end(self, session: Session) -> None:
        """Forget a session."""
        del self._sessions[session.key]
        self._free.append(session.row)

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(array[rows] for array in self._memory)

    def write(self, rows: np.ndarray, memories: Sequence[Any]) -> None:
        """Replace the memories of some rows by the first of those given."""
        for array, after in zip(self._memory, memories, strict=True):
            array[rows] = np.asarray(after)[: len(rows)]

    def _expire(self) -> None:
        """Forget the sessions whose time is over. Those that are busy are used now; they stand further back."""
        latest = self._clock() - self.seconds
        while self._sessions:
            first = next(iter(self._sessions.values()))
            if first.used > latest:
                return
            if first.busy:
                self._sessions.move_to_end(first.key)
                first.used = self._clock()
                continue
            self.end(first)
            self.expired += 1
