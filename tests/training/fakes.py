"""Runs of which only some parts exist."""

from typing import Any

import riskpath as rp


def fake_run(**parts: Any) -> rp.Run:
    """Return a run with these attributes and methods in place of its own; others that were never set are missing."""
    parts = {name: staticmethod(part) if callable(part) else part for name, part in parts.items()}
    made: Any = type("FakeRun", (rp.Run,), parts)
    return object.__new__(made)
