"""What agents learn from logged data of random play, beside what they learn online, on problems with known optima.

    python benchmarks/learning/logged_data.py                                  all of them, 20 minutes on a core
    python benchmarks/learning/logged_data.py --only RiskyGrid --updates 500  to try it
    python benchmarks/learning/logged_data.py --draw                          table and figure of the results so far

Every agent has its default network and training, no discount, and equally many calls of `learn`: on the steps of
`EPISODES` random episodes (`rp.record`, `rp.train(data=…)`), or online with one step for each call. A line of the file
is a problem, an agent and a way of learning. The share is (value − mean-optimal) / (optimum − mean-optimal) at the
measure. Optima are exact, and so are learned policies that distinguish few situations; others play 20,000 episodes. An
interrupted run continues after the lines that are there.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import riskpath as rp

OUT = Path(__file__).parents[1] / "results" / "logged_data.jsonl"
RISK = "cvar:0.1"
EPISODES = 3_000
PROBLEMS = ("RiskyGrid", "BettingGame", "Inventory")
AGENTS: dict[str, Any] = {
    "mean-trained IQN": lambda: rp.IQN("mean", discount=1.0),
    "Adaptive": lambda: rp.Adaptive(RISK, discount=1.0),
    "QR-SRM": lambda: rp.QRSRM(RISK, discount=1.0),
    "IQN": lambda: rp.IQN(RISK, discount=1.0),
    "TQL": lambda: rp.TQL(RISK, discount=1.0, critic="trajectory"),
}
WAYS = ("data", "online")


def measure(name: str, data: rp.Dataset, agent: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one agent in one way and return the line of the file."""
    problem = rp.make(name)
    mean_optimal, best = rp.solve(problem, "mean").law.risk(RISK), rp.solve(problem, RISK).value
    learner, given, began = AGENTS[agent](), {"seeds": options.seeds}, time.process_time()
    if way == "data":
        run = rp.train(learner, problem, data=data, steps=options.updates, **given)
    else:
        run = rp.train(learner, problem, steps=options.updates + learner.training.learning_starts, **given)
    seconds = time.process_time() - began
    laws = [_law(run, seed) for seed in range(options.seeds)]
    values = [law.risk(RISK) for law in laws]
    return {
        "problem": name,
        "agent": agent,
        "way": way,
        "risk": RISK,
        "optimum": round(best, 4),
        "mean_optimal": round(mean_optimal, 4),
        "values": np.round(values, 4).tolist(),
        "shares": [round((value - mean_optimal) / (best - mean_optimal), 4) for value in values],
        "means": [round(float(law.mean), 4) for law in laws],
        "estimates": np.round(np.asarray(run.estimates()).reshape(-1), 4).tolist(),
        "episodes": len(data.episodes),
        "logged_steps": len(data),
        "updates": options.updates,
        "cpu_s": round(seconds, 1),
        "version": rp.__version__,
    }


def _law(run: rp.Run, seed: int) -> Any:
    """Return the distribution of the return of one seed: exact where that is quick, else that of 20,000 episodes."""
    try:
        return run.law(seed, max_situations=2_000)
    except rp.RiskpathError:
        return rp.Law.of_sample(np.asarray(run.evaluate(20_000, seed=1).returns).reshape(-1, 20_000)[seed])


def read(out: Path) -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def draw(lines: list[dict[str, Any]], out: Path) -> None:
    """Write a table and a figure beside the file of results."""
    import matplotlib.pyplot as plt

    problems = [name for name in PROBLEMS if any(line["problem"] == name for line in lines)]
    agents = [agent for agent in AGENTS if any(line["agent"] == agent for line in lines)]
    found = {(line["problem"], line["agent"], line["way"]): line["shares"] for line in lines}
    rows = ["| agent | " + " | ".join(f"{name}, {way}" for name in problems for way in WAYS) + " |"]
    rows.append("|---|" + "---:|" * (2 * len(problems)))
    for agent in agents:
        cells = [found.get((name, agent, way)) for name in problems for way in WAYS]
        texts = ["–" if cell is None else f"{np.median(cell):.2f}" for cell in cells]
        rows.append(f"| {agent} | " + " | ".join(text.replace("-", "−") for text in texts) + " |")
    out.with_suffix(".md").write_text("\n".join(rows) + "\n")
    figure, axes = plt.subplots(1, len(problems), figsize=(3.6 * len(problems), 3.2), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], problems, strict=True):
        for place, way in enumerate(WAYS):
            for row, agent in enumerate(agents):
                shares = np.clip(found.get((name, agent, way), []), LEAST, None)
                height = np.full(len(shares), row + 0.3 * place - 0.15)
                style: dict[str, Any] = {"color": f"C{place}", "s": 22, "label": LABELS[place] if row == 0 else None}
                axis.scatter(shares, height, facecolors="none" if place else f"C{place}", **style)
        axis.axvline(1.0, color="0.6", lw=0.8, zorder=0)
        axis.axvline(0.0, color="0.6", lw=0.8, ls=":", zorder=0)
        axis.set(title=name, xlabel="share of the advantage", yticks=range(len(agents)), xlim=(LEAST - 0.08, 1.12))
        axis.set_yticklabels(agents)
    axes[0][0].set_ylim(len(agents) - 0.5, -0.5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncol=2, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(out.with_suffix(".png"), dpi=160)


LEAST = -1.0
"""Lower shares are drawn here."""
LABELS = ("from logged random play", "online")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--agents", nargs="*", default=list(AGENTS), choices=list(AGENTS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--updates", type=int, default=10_000, help="calls of learn")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    if options.draw:
        draw(read(options.out), OUT)
        return
    for name in options.only:
        done = {(line["problem"], line["agent"], line["way"]) for line in read(options.out)}
        wanted = [(agent, way) for agent in options.agents for way in options.ways]
        left = [(agent, way) for agent, way in wanted if (name, agent, way) not in done]
        data = rp.record("random", name, EPISODES) if left else None
        for agent, way in left:
            assert data is not None
            line = measure(name, data, agent, way, options)
            print(json.dumps(line), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
