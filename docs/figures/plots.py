"""Draw the example of the page about plotting: laws of three policies, and learning curves of two agents.

Run `python docs/figures/plots.py` to write `plots.png` next to this file; it takes about a minute.
"""

from pathlib import Path

from three_policies import RISK, savings

import riskpath as rp


def two_years() -> rp.FiniteMDP:
    """Return the problem of the tutorials: two years of shares or bonds."""
    assets = {"shares": [(0.8, 40.0), (0.2, -10.0)], "bonds": [(1.0, 5.0)]}
    return rp.FiniteMDP.from_outcomes(
        {
            (t, name): [(p, gain, t + 1) for p, gain in asset]
            for t in (1, 2)
            for name, asset in assets.items()
        },
        start=1,
    )


if __name__ == "__main__":
    figure, ((left, right),) = rp.plot.panels(1, 2, width=4.6, height=3.4)
    mdp = savings()
    policies = {
        "best mean": rp.solve(mdp, rp.Mean(), "markov").law,
        "risk of each step": rp.solve(mdp, RISK, "markov").law,
        "risk of the total": rp.solve(mdp, RISK, "adaptive").law,
    }
    rp.plot.compare(policies, risk=RISK, ax=left, kind="quantiles")
    training = rp.Training(
        learning_starts=200,
        learning_rate=0.03,
        target_update_interval=50,
    )
    options = {"discount": 1.0, "network": rp.Network(head="table"), "training": training}
    for agent, colour in (
        (rp.TQL("cvar:0.25", critic="trajectory", **options), "TQL"),
        (rp.IQN("cvar:0.25", **options), "IQN"),
    ):
        run = rp.train(agent, two_years(), steps=2_000, seeds=8, evaluate_every=100)
        run.plot(right, color=rp.plot.COLOURS[colour])
    right.legend(right.get_lines(), ["TQL", "IQN"], frameon=False, fontsize=8)
    rp.plot.save(figure, Path(__file__).with_suffix(".png"))
