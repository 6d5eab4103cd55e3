"""What the tests of benchmarks share."""

import importlib
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*/*.py"))


@pytest.fixture(scope="module")
def benchmark():
    """Return a function that imports a benchmark."""
    folders = sorted({str(path.parent) for path in FILES})
    sys.path[:0] = folders
    yield importlib.import_module
    del sys.path[: len(folders)]
