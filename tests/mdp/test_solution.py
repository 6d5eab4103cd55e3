"""Solutions as text, as JSON and as a plot."""

import riskpath as rp


def test_describe_lists_the_decisions_in_words():
    solution = rp.solve(rp.RiskyGrid().mdp(), "cvar:0.1", "adaptive")
    text = solution.describe()
    assert text.startswith("cvar:0.1 of the whole return, adaptive policies: 79.875 (optimal)")
    assert "step 5, free (2,2): down at return -8; right at return 92; down at return 192" in text
    assert solution.to_json()["policy"][0] == "step 1, start (0,0): down"


def test_plot_draws_the_law_of_the_return(monkeypatch):
    solution = rp.solve(rp.ThreeState().mdp(), "cvar:0.1", "history")
    calls = []
    monkeypatch.setattr("riskpath.plot.plot_law", lambda *args, **options: calls.append((args, options)) or "axes")
    assert solution.plot("my axes", label="best", color="red") == "axes"
    assert calls == [((solution.law, "my axes"), {"kind": "cdf", "label": "best", "color": "red"})]
