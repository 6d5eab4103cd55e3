"""What every experiment writes: results that say how they were made, whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import jax


def header(command: str, seconds: float) -> dict[str, Any]:
    """Where figures come from."""
    return {"command": command, "device": jax.devices()[0].device_kind, "seconds": round(seconds, 1)}


def write_json(path: Path, result: dict[str, Any] | list[Any]) -> None:
    """Replaces the file in one go: a reader, or an interruption, never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(result) + "\n")
    os.replace(draft, path)


def earlier(path: Path, command: str) -> dict[str, Any]:
    """What an interrupted run of the same command has left."""
    if path.exists():
        found = json.loads(path.read_text())
        if found.get("command") == command:
            return found
    return {"command": command, "seconds": 0.0, "records": []}
