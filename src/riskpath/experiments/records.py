"""Results as JSON files that record how they were made and are written completely or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import jax


def header(command: str, seconds: float) -> dict[str, Any]:
    """Return the command, the device and the time behind a result."""
    return {"command": command, "device": jax.devices()[0].device_kind, "seconds": round(seconds, 1)}


def write_json(path: Path, result: dict[str, Any] | list[Any]) -> None:
    """Write JSON to a temporary file and rename it, so that an interruption never leaves half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(result) + "\n")
    os.replace(temporary, path)


def earlier(path: Path, command: str) -> dict[str, Any]:
    """Return the result so far of an interrupted run of the same command, or an empty one."""
    if path.exists():
        result = json.loads(path.read_text())
        if result.get("command") == command:
            return result
    return {"command": command, "seconds": 0.0, "records": []}
