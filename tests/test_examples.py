"""Every example runs and prints its results."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, unchecked, optimised, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
