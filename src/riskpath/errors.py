"""The one exception a user can cause: its text is one line that names the value and what is accepted."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class RiskpathError(ValueError):
    """A wrong input: the command line prints its text as one line and exits with status 2."""


@contextmanager
def in_one_line(what: str, hint: str = "") -> Iterator[None]:
    """Whatever a user's own code raises, it is the user's to know."""
    try:
        yield
    except RiskpathError:
        raise
    except Exception as error:
        raise RiskpathError(f"{what}: {one_line(error)}{hint}") from error


def one_line(error: BaseException) -> str:
    """Kind and text of an exception."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the name that is most like a misspelt one, or at one that ends with it; nothing if there is none."""
    names = {name.lower(): name for name in known}
    close = [name for name in names if name.endswith(f".{word.lower()}")]
    close += difflib.get_close_matches(word.lower(), names, n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""
