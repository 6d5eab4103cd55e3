"""Figures in the README and on the results pages are those of the committed result files."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def within_one_percent(file: str, agent: str) -> float:
    """Return the share of runs on random problems that are within 1 % of the optimum."""
    parts = [part for part in json.loads((RESULTS / file).read_text())["parts"] if part["agent"] == agent]
    near = [np.array(row["values"]) >= row["optimum"] - 0.01 * abs(row["optimum"]) for p in parts for row in p["rows"]]
    return 100 * float(np.mean(np.concatenate(near)))


def horizon(length: int) -> float:
    """Return Adaptive's median share of the advantage on random problems of a length."""
    lines = [json.loads(line) for line in (RESULTS / "horizon.jsonl").read_text().splitlines()]
    own = [x for x in lines if (x["problem"], x["length"], x["agent"]) == ("random", length, "Adaptive")]
    share = [(np.array(x["values"]) - x["mean_optimal"]) / (x["optimum"] - x["mean_optimal"]) for x in own]
    return float(np.median(np.concatenate(share)))


FIGURES = {
    "README.md": [
        f"| 41 % of runs | {within_one_percent('random_mdps_longer.json', 'Adaptive'):.1f} % |",
        f"| {within_one_percent('random_mdps.json', 'IQN'):.0f} % of runs |",
    ],
    "docs/results/index.md": [f"{within_one_percent('random_mdps_longer.json', 'Adaptive'):.1f} % of runs"],
    "docs/results/adaptive.md": [f"**{within_one_percent('random_mdps_longer.json', 'Adaptive'):.1f}%**"],
    "docs/guides/long-episodes.md": [
        "| Adaptive, share | " + " | ".join(f"{horizon(length):.2f}" for length in (8, 32, 64, 128, 256)) + " |"
    ],
}


@pytest.mark.parametrize("page", FIGURES)
def test_figures_are_those_of_the_files(page):
    text = (ROOT / page).read_text()
    for figure in FIGURES[page]:
        assert figure in text
