"""The paper's first and third figures: exact laws, and what is drawn."""

import json
from pathlib import Path

import pytest

import riskpath as rp
from riskpath.experiments import reproduce_three_state as three_state

RESULTS = Path(__file__).parent.parent.parent / "results"
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


def test_first_figure():
    table = {}
    for row in three_state.first_figure():
        table.setdefault(row["row"], {})[row["state"], row["action"]] = row["cvar"]
    assert table == FIRST_FIGURE


@pytest.mark.parametrize(("agent", "letter", "history", "action"), three_state.PANELS)
def test_exact_laws_of_the_third_figure(agent, letter, history, action):
    law = three_state.exact_law(agent, history, action)
    cvar, actions = PANELS[letter]
    assert three_state.RISK.value(law) == pytest.approx(cvar)
    if actions:
        assert law.isclose(rp.ThreeState().mdp().evaluate(actions))
    else:  # one step is left
        assert law.isclose(rp.Law([-10, 100], [0.1, 0.9]) if action == "risky" else rp.Law.point(-5.0))


def test_third_figure_is_drawn(tmp_path):
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


def test_committed_results_have_the_exact_laws_and_the_policies_of_the_paper():
    result = json.loads((RESULTS / "three_state.json").read_text())
    assert {panel["panel"]: panel["cvar"] for panel in result["panels"]} == pytest.approx(
        {k: v[0] for k, v in PANELS.items()}
    )
    actions = {(lane["agent"], *lane["actions"]) for lane in result["policies"]}
    assert actions == {("IQN", "safe", "safe"), ("TQL", "risky", "risky")}


@pytest.mark.long
def test_training_is_recorded_for_every_panel(monkeypatch, tmp_path, unchecked):
    """No gradient steps; the records have the shapes that the figure needs."""
    calls = []

    def train(agent, problem, *, steps, **options):
        calls.append((type(agent).__name__, steps))
        return rp.train(agent, problem, steps=16, **options)

    monkeypatch.setattr(three_state, "train", train)
    result = three_state.reproduce(tmp_path, quick=True, seeds=2, show=lambda _: None)
    assert calls == [("IQN", 32_000), ("TQL", 32_000)]
    assert {panel["panel"] for panel in result["panels"]} == set(PANELS)
    assert all(len(panel["quantiles"]) == 2 and len(panel["quantiles"][0]) == 100 for panel in result["panels"])
    assert json.loads((tmp_path / "three_state.json").read_text())["policies"] == result["policies"]
    assert (tmp_path / "three_state.png").stat().st_size > 10_000
