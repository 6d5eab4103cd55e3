"""The exception for wrong input. Its text is one line that names the value and what is accepted."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class RiskpathError(ValueError):
    """A mistake in a user's input. The command line prints its text as one line and exits with status 2."""


@contextmanager
def in_one_line(what: str, hint: str = "") -> Iterator[None]:
    """Turn any exception raised by a user's own code into a `RiskpathError` of one line: what failed, and why."""
    try:
        yield
    except RiskpathError:
        raise
    except Exception as error:
        raise RiskpathError(f"{what}: {one_line(error)}{hint}") from error


def one_line(error: BaseException) -> str:
    """Return the type and the text of an exception on one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def short_repr(value: Any, limit: int = 200) -> str:
    """Return `repr(value)` on one line, cut to `limit` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is most similar to `word` or ends with it; "" if no name is.

    What follows the last dot must be similar: names have the same words before it.
    """
    names = {name.lower(): name for name in known}
    word, last = word.lower(), lambda name: name.rpartition(".")[2].lstrip("-")
    close = [name for name in names if name.endswith(f".{word}")]
    alike = difflib.get_close_matches(last(word), map(last, names), n=1)
    close += difflib.get_close_matches(word, [name for name in names if last(name) in alike], n=1, cutoff=0.0)
    return f" (did you mean {names[close[0]]}?)" if close else ""
