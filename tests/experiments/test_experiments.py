"""The paper's experiments: exact figures, what is drawn, and taking up where an interruption left off."""

import json

import numpy as np
import pytest

import riskpath as rp
from riskpath.experiments import grid, grid_figures, three_state

pytestmark = pytest.mark.usefixtures("quick_compilation")

# The first figure: CVaR at 0.1, where a bet is lost with probability 0.1.
FIRST_FIGURE = {
    "R": {("s0", "risky"): -10, ("s0", "safe"): -5, ("s1", "risky"): -10, ("s1", "safe"): -5},
    "Z*": {("s0", "risky"): 79, ("s0", "safe"): -15, ("s1", "risky"): -10, ("s1", "safe"): -5},
    "Z": {("s0", "risky"): 0, ("s0", "safe"): 0, ("s1", "risky"): -10, ("s1", "safe"): -5},
    "T*Z": {("s0", "risky"): -15, ("s0", "safe"): -10, ("s1", "risky"): -10, ("s1", "safe"): -5},
}
# The third: CVaR of each panel, and the actions whose return (to go, for IQN) it shows the law of.
PANELS = {
    "a": (-15, ["risky", "safe"]),
    "b": (-10, ["safe", "safe"]),
    "c": (-10, None),
    "d": (-5, None),
    "e": (79, ["risky", "risky"]),
    "f": (79, ["risky", "risky"]),
    "g": (-15, ["risky", "safe"]),
    "h": (-10, ["safe", "safe"]),
    "i": (-15, ["safe", "risky"]),
    "j": (-10, ["safe", "safe"]),
}


def test_the_first_figure():
    found = {}
    for row in three_state.first_figure():
        found.setdefault(row["row"], {})[row["state"], row["action"]] = row["cvar"]
    assert found == FIRST_FIGURE


@pytest.mark.parametrize(("agent", "letter", "seen", "action"), three_state.PANELS)
def test_the_exact_laws_of_the_third_figure(agent, letter, seen, action):
    law = three_state.exact_law(agent, seen, action)
    cvar, actions = PANELS[letter]
    assert three_state.RISK.value(law) == pytest.approx(cvar)
    if actions:
        assert law.isclose(rp.ThreeState().mdp().evaluate(actions))
    else:  # one step is left
        assert law.isclose(rp.Law([-10, 100], [0.1, 0.9]) if action == "risky" else rp.Law.point(-5.0))


def test_the_third_figure_is_drawn(tmp_path):
    panels = [
        {"panel": letter, "atoms": [-10.0, 100.0], "probs": [0.1, 0.9], "cvar": PANELS[letter][0]}
        | {"quantiles": [[7.0] * 100, [9.0] * 100], "cvar_predicted": [7.0, 9.0]}
        for _, letter, _, _ in three_state.PANELS
    ]
    figure = three_state.draw({"panels": panels})
    for axis, (agent, letter, _, action) in zip(figure.axes, three_state.PANELS, strict=True):
        assert axis.get_title().startswith(f"({letter}) {agent}")
        assert axis.get_title().endswith(action)
        assert [set(line.get_ydata()) for line in axis.lines] == [{7.0}, {9.0}]
        assert axis.texts[0].get_text() == f"CVaR {PANELS[letter][0]}\nlearned 8.0"
    figure.savefig(tmp_path / "figure.png")


def tiny(level: float) -> rp.IQN:
    training = rp.Training(
        learning_starts=60, target_update_interval=20, batch_size=8, online_taus=8, target_taus=8, act_taus=8
    )
    return rp.IQN(rp.CVaR(level), network=rp.Network(head="table"), training=training)


@pytest.fixture
def trained(monkeypatch) -> list[list[str]]:
    """Tiny programs in place of the real ones; the measures of each training that was begun."""
    calls = []

    def train(agents, *rest, **options):
        if isinstance(agents, list):
            calls.append([str(agent.risk) for agent in agents])
        return rp.train(agents, *rest, **options)

    programs = [
        grid.Program("IQN", [(tiny(0.1), grid.GRID), (tiny(0.5), grid.PROBE)], 200),
        grid.Program("IQN, other", [(tiny(0.2), grid.GRID), (tiny(0.25), grid.GRID)], 200),
    ]
    monkeypatch.setattr(grid, "programs", lambda quick: programs)
    monkeypatch.setattr(grid, "train", train)
    return calls


def test_the_grid_goes_on_where_it_was_interrupted(trained, tmp_path, unchecked):
    first = grid.reproduce(tmp_path, seeds=2, only="other", show=lambda _: None)
    assert trained == [["cvar:0.2", "cvar:0.25"]]
    whole = grid.reproduce(tmp_path, seeds=2, show=lambda _: None)
    assert trained[1:] == [["cvar:0.1", "cvar:0.5"]]
    assert json.loads((tmp_path / "grid.json").read_text()) == whole
    assert whole["records"][:4] == first["records"]
    again = grid.reproduce(tmp_path, seeds=2, show=lambda _: None)
    assert len(trained) == 2
    assert again == whole
    grid.reproduce(tmp_path, seeds=1, only="other", show=lambda _: None)  # another command: nothing to go on from
    assert len(trained) == 3

    record = next(r for r in whole["records"] if r["risk"] == "cvar:0.5" and r["seed"] == 1)
    law = rp.Law(record["atoms"], record["probs"])
    assert record["grid"] == "probe"
    assert record["value"] == pytest.approx(rp.CVaR(0.5).value(law), abs=1e-4)
    assert record["curve"][-1][1:] == [round(record["value"], 3), record["path"]]
    rows = {(row["risk"], row["grid"]): row for row in grid.summary(whole)}
    assert rows["cvar:0.1", "paper"]["history_optimum"] == pytest.approx(72.375)
    values = [r["value"] for r in whole["records"] if r["risk"] == "cvar:0.1"]
    assert rows["cvar:0.1", "paper"]["median"] == pytest.approx(np.median(values))
    assert [path.name for path in grid_figures.write(whole, tmp_path)] == [
        "grid_curves.png",
        "grid_returns.png",
        "grid_paths.md",
    ]


def test_paths_are_counted():
    assert grid.counted(["BBB", "YYY", "YYY"]) == "YYY 2/3, BBB 1/3"
