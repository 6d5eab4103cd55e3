"""Optional dependencies: a missing one is reported in one line that names the extra to install."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from riskpath.errors import RiskpathError

EXTRAS = {
    "cli": ("tyro", "rich"),
    "data": ("minari", "h5py"),
    "export": ("flatbuffers",),
    "gymnasium": ("gymnasium",),
    "mlflow": ("mlflow",),
    "onnx": ("jax2onnx", "onnx", "onnxruntime"),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "serve": ("starlette", "uvicorn", "httptools", "uvloop", "prometheus_client"),
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
}
"""Extra → the packages it installs."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import the packages of an extra inside this block; if one is missing, name the extra that installs it.

    Args:
        extra: A key of `EXTRAS`.
        what: The feature that needs it, the subject of the message: "a Gymnasium environment".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS[extra]:
            raise
        packages = " and ".join(EXTRAS[extra])
        raise RiskpathError(f"{what} needs {packages}: pip install 'riskpath[{extra}]'") from None


def require_extra(module: str, extra: str, what: str) -> Any:
    """Import and return a module of an extra; if it is missing, name the extra that installs it."""
    with needs_extra(extra, what):
        return importlib.import_module(module)
