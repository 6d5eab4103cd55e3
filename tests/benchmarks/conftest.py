"""What the tests of benchmarks share."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    """Return a function that imports a benchmark."""
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
