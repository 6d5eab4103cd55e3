"""Results as JSON files that record how they were made and are written completely or not at all."""

import json
from pathlib import Path
from typing import Any

import jax

from riskpath.files import write_json as write_json


def command_of(experiment: str, quick: bool, seeds: int | None = None) -> str:
    """Return the command of an experiment; `seeds` is None for its usual number."""
    return f"riskpath reproduce {experiment}{' --quick' if quick else ''}" + (f" --seeds {seeds}" if seeds else "")


def header(command: str, seconds: float) -> dict[str, Any]:
    """Return the command, the device and the time behind a result."""
    return {"command": command, "device": jax.local_devices()[0].device_kind, "seconds": round(seconds, 1)}


def earlier(path: Path, command: str) -> dict[str, Any]:
    """Return the result so far of an interrupted run of the same command, or an empty one."""
    if path.exists():
        result = json.loads(path.read_text())
        if result.get("command") == command:
            return result
    return {"command": command, "seconds": 0.0, "records": []}
