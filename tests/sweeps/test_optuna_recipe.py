"""The recipe for Optuna in the guide runs, and goes on with its study when it is run again."""

import pytest

import riskpath as rp
from tests.test_docs import DOCS, blocks

optuna = pytest.importorskip("optuna")
pytest.importorskip("sqlalchemy")


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_tunes_and_resumes(tmp_path, monkeypatch, untrained, unchecked):
    (recipe,) = (block for block in blocks(DOCS / "guides" / "sweeps.md", "py") if "optuna" in block)
    monkeypatch.chdir(tmp_path)
    for expected in (2, 4):
        names = {"rp": rp}
        exec(recipe.replace("n_trials=6", "n_trials=2"), names)
        trials = names["study"].trials
        assert len(trials) == expected
        assert len(trials[0].intermediate_values) == 4
