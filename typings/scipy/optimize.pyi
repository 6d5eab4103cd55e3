"""SciPy has no types; inferring them from its source would take a fifth of the time of `make lint`."""

from typing import Any

def __getattr__(name: str) -> Any: ...
