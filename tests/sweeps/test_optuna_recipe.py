"""The recipe for Optuna in the guide runs, prunes, and goes on with its study when it is run again."""

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from tests.test_docs import DOCS, blocks

optuna = pytest.importorskip("optuna")
pytest.importorskip("sqlalchemy")


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_tunes_and_resumes(tmp_path, monkeypatch, untrained, unchecked):
    monkeypatch.chdir(tmp_path)
    for expected in (2, 4):
        trials = follow({"rp": rp}, 2)
        assert [trial.state.name for trial in trials] == ["COMPLETE"] * expected  # too few to prune
        assert list(trials[0].intermediate_values) == [250, 350, 450, 550]  # whole rounds of 100 after 50 steps


def train(agent, env=None, *, steps, seeds=1):
    """Return what the recipe needs of a run; its value rises with training, and depends on the learning rate."""
    if not isinstance(agent, rp.Agent):
        agent, steps = agent.agent, steps + agent.steps
    training: Any = agent.training
    value = steps / 100 - abs(np.log10(training.learning_rate) + 2)
    return SimpleNamespace(agent=agent, steps=steps, values=lambda: np.full((1, 4), value))


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_prunes_what_lags_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sampler = optuna.samplers.RandomSampler(seed=0)
    monkeypatch.setattr(optuna, "create_study", functools.partial(optuna.create_study, sampler=sampler))
    trials = follow({"rp": SimpleNamespace(IQN=rp.IQN, Training=rp.Training, train=train)}, 12)
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert 0 < len(pruned) < 9
    assert all(trial.number >= 3 and len(trial.intermediate_values) < 4 for trial in pruned)
    best = max(trials, key=lambda trial: trial.value if trial.state.name == "COMPLETE" else -np.inf)
    assert all(trial.intermediate_values[200] < best.intermediate_values[200] for trial in pruned)


def follow(names, count):
    """Run the recipe with other numbers of trials; return all trials of its study."""
    (recipe,) = (block for block in blocks(DOCS / "guides" / "sweeps.md", "py") if "optuna" in block)
    assert "n_trials=20" in recipe
    exec(recipe.replace("n_trials=20", f"n_trials={count}"), names)
    return names["study"].trials
