"""Results show themselves in a notebook, with their text escaped."""

import numpy as np

import riskpath as rp
from riskpath.plot.notebook import html_lines, html_table


def test_text_is_escaped():
    assert "<td>&lt;b&gt;</td><td>0.333333</td>" in html_table("a < b", [{"name": "<b>", "value": 1 / 3}])
    assert html_lines("a & b", ["<script>"]) == "<p><b>a &amp; b</b></p><pre>&lt;script&gt;</pre>"


def test_solutions_frontiers_evaluations_and_runs_have_html(untrained):
    mdp = rp.ThreeState().mdp()
    solution, frontier = rp.solve(mdp, "cvar:0.1"), rp.frontier(mdp, (0.1, 1.0))
    assert f"{solution.value:.6g}" in solution._repr_html_()
    assert f"<td>{float(frontier.values[0]):.6g}</td>" in frontier._repr_html_()
    evaluation = rp.Evaluation(np.ones((1, 1, 4)), np.ones((1, 1, 4)), [rp.CVaR(0.5)], 1.0)
    assert "4 episodes" in evaluation._repr_html_()
    small = rp.Training(learning_starts=10, batch_size=2, num_quantiles=2, num_target_quantiles=2)
    run = rp.train(rp.IQN("cvar:0.1", network=rp.Network(head="table"), training=small), "ThreeState", steps=20)
    assert "Run of IQN on ThreeState" in run._repr_html_()
