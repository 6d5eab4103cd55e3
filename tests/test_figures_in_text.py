"""Tables and figures in the README and on the results pages are those of the committed result files."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@cache
def read(name: str) -> Any:
    """Return the content of a result file, of a file of lines as a list."""
    text = (ROOT / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def measured(name: str) -> Any:
    """Return the content of a file of the benchmarks."""
    return read(f"benchmarks/results/{name}")


def row(*cells: object) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def texts(values: Iterable[float], form: str) -> list[str]:
    """Return numbers as text, with a true minus sign and without a negative zero."""
    found = [f"{value:{form}}" for value in values]
    return [(text[1:] if float(text) == 0 and text[0] == "-" else text).replace("-", "−") for text in found]


def span(values: list[float], form: str, *, mean: bool = False, between: str = "…") -> str:
    """Return the median (or mean) of values and their range."""
    middle = float(np.mean(values) if mean else np.median(values))
    centre, low, high = texts([middle, min(values), max(values)], form)
    return f"{centre} ({low} {between} {high})"


def share(part: dict[str, Any]) -> np.ndarray:
    """Return the shares of the optimum's advantage over the mean-optimal policy."""
    return (np.array(part["values"]) - part["mean_optimal"]) / (part["optimum"] - part["mean_optimal"])


# Random problems


def near(file: str, agent: str, risks: tuple[str, ...] = ()) -> float:
    """Return the percentage of runs on random problems that are within 1 % of the optimum."""
    parts = [part for part in measured(file)["parts"] if part["agent"] == agent]
    rows = [x for part in parts for x in part["rows"] if not risks or x["risk"] in risks]
    return 100 * float(np.mean([np.array(x["values"]) >= x["optimum"] - 0.01 * abs(x["optimum"]) for x in rows]))


def close(agent: str, file: str) -> float:
    """Return the percentage of runs within 1 % of a standard deviation of the optimum."""
    rows = [x for part in measured(file)["parts"] if part["agent"] == agent for x in part["rows"]]
    return 100 * float(np.mean([np.array(x["values"]) >= x["optimum"] - 0.01 * x["spread"] for x in rows]))


def random_problems() -> list[str]:
    """Return the table of random problems."""
    risks = ("cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "pow:-2", "cpw:0.71")
    lines = []
    for agent, steps, file in (
        ("IQN", "640,000", "random_mdps.json"),
        ("TQL", "640,000", "random_mdps.json"),
        ("Adaptive", "1,280,000", "random_mdps_longer.json"),
    ):
        cells = [f"{near(file, agent, (risk,)):.0f} %" for risk in risks]
        lines.append(row(agent, steps, *cells, f"{near(file, agent):.1f} %"))
    return lines


# The suite


def benchmark_table(risk: str) -> list[str]:
    """Return the shares of all agents on all problems for one measure, means over seeds."""
    rows = {
        (x["problem"], x["agent"]): x["share"] for x in read("results/bench/bench.json")["rows"] if x["risk"] == risk
    }
    agents = ("mean control", "IQN", "TQL", "CVaR-DRL", "QR-SRM", "Adaptive")
    problems = list(dict.fromkeys(problem for problem, _ in rows))
    return [
        row(problem, *(texts([rows[problem, agent]], ".2f")[0] for agent in agents))
        for problem in problems
        if rows[problem, "Adaptive"] is not None
    ]


def longer_trainings() -> list[str]:
    """Return the shares of longer trainings of Adaptive."""
    lines = []
    for problem, label, steps in (("BettingGame", "32 atoms", "16 million"), ("Inventory", "64 atoms", "16 million")):
        (cell,) = [
            run["cell"]
            for run in measured("adaptive_larger.json")["runs"]
            if run["cell"]["problem"] == problem and run["cell"]["steps"] > 16e6
        ]
        medians = [np.median(share(part)) for part in cell["results"]]
        lines.append(row(problem, f"{steps} steps, {label}", *texts(medians, ".3f")))
    return lines


def optima() -> list[str]:
    """Return the table of what can be reached on the suite."""
    lines = []
    for record in read("results/suite_optima.json")["records"]:
        value = {(x["risk"], x["policies"]): x["value"] for x in record["cells"]}
        cells = [value["mean", "markov"]] if ("mean", "markov") in value else [value["mean", "adaptive"]]
        for risk in ("cvar:0.1", "cvar:0.25"):
            cells += [value[risk, policies] for policies in ("mean-optimal", "markov", "adaptive")]
        lines.append(row(record["problem"], *texts(cells, ".4g")))
    return lines


# Trading and hedging


def trading() -> list[str]:
    """Return the table of trading."""
    names = {"mean control": "trained for the mean", "Adaptive": "Adaptive, 21 trades"}
    names["AdaptiveContinuous"] = "AdaptiveContinuous, any trade"
    lines = []
    for x in measured("trading.json")["rows"]:
        cells = [span(x["levels"][level]["cvars"], ".3f") for level in ("0.25", "0.5")]
        lines.append(row(names.get(x["agent"], x["agent"]), *cells))
    return lines


def larger_trading() -> list[str]:
    """Return the row of the largest training of Adaptive for trading."""
    last = measured("trading_larger.json")["runs"][-1]["row"]
    return [
        row("Adaptive, 64 atoms, twice the steps", *(span(last["levels"][x]["cvars"], ".3f") for x in ("0.25", "0.5")))
    ]


def hedging() -> list[str]:
    """Return the table of hedging."""
    cvars = {x["policy"]: x["cvars"] for x in measured("hedging.json")["rows"]}
    return [span(x, ".4f", mean=True) if len(x) > 1 else texts(x, ".4f")[0] for x in cvars.values()]


def peers() -> list[str]:
    """Return the table of trading beside the public code of QR-SRM."""
    found: dict[str, list[str]] = {}
    for x in measured("qrsrm_peer.json")["rows"]:
        found.setdefault(x["agent"], []).append(span(x["cvars"], ".2f", mean=True))
    return [" | ".join(cells) for cells in found.values()]


# Speed


def rates() -> list[str]:
    """Return the rates of training on one core beside peers."""
    rates = {
        (x["program"], x["size"], x["lanes"]): x["updates_per_second"] for x in measured("throughput-cpu.json")["rows"]
    }
    ratio = {(x["ratio"], x["size"], x["lanes"]): x["value"] for x in measured("throughput-cpu.json")["ratios"]}
    sizes = (("paper", 1), ("small", 8))
    peers = {"Rejax IQN": "Rejax IQN", "QR-DQN": "sb3-contrib QR-DQN, one seed at a time"}
    lines = [row("Riskpath IQN", *(f"**{rates['IQN', *size]:,.0f}**" for size in sizes))]
    for peer, name in peers.items():
        cells = [f"{rates[peer, *x]:.3g} ({ratio[f'IQN / {peer}', *x]:.2g} times less)" for x in sizes]
        lines.append(row(name, *cells))
    return lines


def gpu_rates() -> list[str]:
    """Return the rates of training on a GPU."""
    rows = measured("throughput-nvidia-h200.json")["rows"]
    rates = {(x["program"], x["size"], x["lanes"]): x["updates_per_second"] for x in rows}
    pairs = (("IQN", "TQL joint", "paper"), ("IQN", "TQL joint", "small"), ("IQTD3", "TQL continuous", "vector"))
    lines = []
    for lanes in (1, 16, 128):
        cells = [f"{round(rates[a, s, lanes], -2):,.0f} / {round(rates[b, s, lanes], -2):,.0f}" for a, b, s in pairs]
        lines.append(row(lanes, *cells))
    return lines


def growth(device: str) -> list[str]:
    """Return how the time of an update grows with each size."""
    lines = []
    for line in measured(f"scaling-{device}.json")["lines"]:
        time = line["time_us"]
        slope = f"{time['slope']:,.0f}" if time["slope"] >= 100 else f"{time['slope']:#.3g}"
        if line["axis"] != "buffer" and (line["axis"], line["agent"]) != ("width", "TQL trajectory"):
            lines.append(row(line["axis"], line["agent"], f"{time['fixed']:,.0f} µs", f"{slope} µs", ""))
    return [line.removesuffix("  |") for line in lines]


def limits() -> list[str]:
    """Return how much of the limits of two machines is used."""
    found: dict[str, list[str]] = {}
    for device in ("cpu", "nvidia-h200"):
        data = measured(f"roofline-{device}.json")
        for x in data["rows"]:
            seconds = x["update_us"] * 1e-6
            used = 100 * x["flops"] / seconds / data["limits"]["float32"]
            moved = 100 * x["bytes"] / seconds / data["limits"]["bandwidth"]
            found.setdefault(x["agent"], []).extend([f"{1e3 * seconds:.3g} ms", f"{used:.0f} %", f"{moved:.0f} %"])
    return [row(agent, *cells) for agent, cells in found.items()]


# The paper's problems


def grid() -> list[str]:
    """Return the table of the grid."""
    data = read("results/grid.json")
    best = {x["risk"]: x["history"] for x in data["optima"] if x["grid"] == "paper"}
    found: dict[tuple[str, str], list[float]] = {}
    for x in data["records"]:
        if x["grid"] == "paper":
            found.setdefault((x["agent"], x["risk"]), []).append(x["value"])
    return [
        row(agent, risk, f"{np.median(v):g}", f"{best[risk]:g}")
        for (agent, risk), v in found.items()
        if risk.startswith("cvar")
    ]


def harder_grid() -> list[str]:
    """Return in how many seeds TQL finds the best path of the harder grid."""
    found = [x["agent"] for x in read("results/grid.json")["records"] if x["grid"] == "probe" and x["path"] == "BBB"]
    forms, kinds = ("joint", "trajectory", "convolved"), ("", ", fine", ", table")
    return [row(form, *(found.count(f"TQL {form}{kind}") for kind in kinds)) for form in forms]


def mountain_car() -> list[str]:
    """Return six cells of the table of mountain car."""
    best = {(x["c"], x["risk"]): x["best"] for x in read("src/riskpath/experiments/mountain_car_optimum.json")["cells"]}
    lines = []
    for c in (0.0, 0.5, 1.0):
        for risk in ("cvar:0.25", "wang:0.75"):
            found: dict[str, list[float]] = {}
            for x in read("results/mountain_car.json"):
                if (x["c"], x["risk"]) == (c, risk):
                    found.setdefault(x["agent"], []).append(x["beta"])
            agents = ("IQTD3", "TQL convolved", "TQL joint", "mean control")
            cells = [span(found[agent], ".1f", between="to") for agent in agents]
            lines.append(" | ".join([*texts([best[c, risk]], ".1f"), *cells]))
    return lines


def three_states() -> list[str]:
    """Return exact and learned CVaR of three states."""
    lines = []
    for panel in read("results/three_state.json")["panels"]:
        learned = panel["cvar_predicted"]
        low, high = texts([min(learned), max(learned)], ".1f")
        exact = texts([panel["cvar"]], ".0f")[0]
        lines.append(f"| {exact} | {low} |" if low == high else f"| {exact} | {low} to {high} |")
    return lines


# Long episodes

LENGTHS = (8, 32, 64, 128, 256)


def horizon(length: int) -> float:
    """Return Adaptive's median share of the advantage on random problems of a length."""
    lines = measured("horizon.jsonl")
    own = [x for x in lines if (x["problem"], x["length"], x["agent"]) == ("random", length, "Adaptive")]
    return float(np.median(np.concatenate([share(x) for x in own])))


def gap(agent: str, length: int) -> float:
    """Return an agent's median distance to the optimum on random problems of a length, in deviations."""
    lines = [
        x for x in measured("horizon.jsonl") if (x["problem"], x["length"], x["agent"]) == ("random", length, agent)
    ]
    return float(np.median([(x["optimum"] - value) / x["deviation"] for x in lines for value in x["values"]]))


# Measures that are not CVaR


def suite_measures(agent: str) -> list[str]:
    """Return the median shares of an agent, a row for each kind of measure."""
    found = measured("suite_measures.json")
    kinds: dict[str, dict[str, float]] = {}
    for problem in (problems := list(found["references"])):
        for text in found["references"][problem]["measures"]:
            name = text.partition(":")[0]
            kinds.setdefault(name if name in ("entropic", "reach", "mmv") else text, {})
    for cell in found["cells"]:
        for x in cell["rows"] if cell["agent"] == agent else ():
            name = x["measure"].partition(":")[0]
            kind = name if name in ("entropic", "reach", "mmv") else x["measure"]
            kinds[kind][cell["problem"]] = float(np.median(x["shares"]))
    return [
        row(f"`{kind}`", *(texts([shares[name]], ".2f")[0] if name in shares else "–" for name in problems))
        for kind, shares in kinds.items()
    ]


def solvers() -> list[str]:
    """Return the tables of exact solvers."""
    exact, cells = measured("exact.json"), measured("grid_solver.json")["rows"]
    lines = [
        f"| {x['value']:,.3f} | {x['search_s']:.2f} s | {x['enumeration_s']:,.0f} s |" for x in exact["comparison"]
    ]
    lines += [f"| {x['value']:,.3f} | {x['seconds']:.1f} s |" for x in exact["largest"]]
    return lines + [f"| {x['cells'] / 1e6:.1f} million | {x['total_s']:.1f} | {x['value']:.4f} |" for x in cells]


def gymnasium() -> list[str]:
    """Return the rates on a Gymnasium environment."""
    return [f"| {x['steps_per_second']:,.0f} |" for x in measured("throughput-gymnasium.json")["rows"]]


def tails() -> list[str]:
    """Return how much of the tails every loss takes away."""
    found: dict[str, list[str]] = {}
    for x in measured("tails.json")["rows"]:
        found.setdefault(x["loss"], []).append(f"{x['cvar:0.1']:.2f}")
    return [" | ".join(cells) for cells in found.values()]


def logged(problem: str) -> str:
    """Return the range of Adaptive's shares from logged random play."""
    (own,) = [
        x
        for x in measured("logged_data.jsonl")
        if (x["problem"], x["agent"], x["way"]) == (problem, "Adaptive", "data")
    ]
    return " to ".join(texts([min(own["shares"]), max(own["shares"])], ".2f"))


def unseen_table(file: str, seed: int) -> str:
    """Return Adaptive's share of the advantage on a table that was never tuned for."""
    (line,) = [x for x in measured(file) if x["seed"] == seed]
    return f"{line['share']:.2f}"


def trading_in_short() -> list[str]:
    """Return the two rows of trading in the README."""
    rows = {x["agent"]: x["levels"] for x in measured("trading.json")["rows"]}
    agents = ("mean control", "IQN", "Adaptive")
    return [" | ".join(texts([np.median(rows[a][x]["cvars"]) for a in agents], ".2f")) for x in ("0.25", "0.5")]


def betting_in_short() -> str:
    """Return the row of the betting game in the README."""
    cells = [cell for cell in read("results/bench/bench.json")["cells"] if cell["problem"] == "BettingGame"]
    value = {
        cell["agent"]: np.median(part["values"])
        for cell in cells
        for part in cell["results"]
        if part["risk"] == "cvar:0.25"
    }
    return " | ".join(texts([value[agent] for agent in ("mean control", "IQN", "Adaptive")], ".1f"))


IN_ALL = f"{near('random_mdps_longer.json', 'Adaptive'):.1f} %"
FIGURES = {
    "README.md": [
        f"| {near('random_mdps.json', 'IQN'):.0f} % of runs | {IN_ALL} |",
        *trading_in_short(),
        betting_in_short(),
    ],
    "docs/results/index.md": [f"{IN_ALL} of runs", f"on BettingGame it has {logged('BettingGame')} of"],
    "docs/results/logged-data.md": [f"shares of {logged('BettingGame')} and of {logged('Inventory')}"],
    "docs/results/adaptive.md": [
        *random_problems(),
        f"of IQN's runs {close('IQN', 'random_mdps.json'):.0f} % are",
        f"of TQL's {close('TQL', 'random_mdps.json'):.0f} %",
        f"with 640,000 steps it had {near('random_mdps.json', 'Adaptive'):.1f} %",
        *trading(),
        *larger_trading(),
        *longer_trainings(),
    ],
    "docs/results/bench.md": benchmark_table("cvar:0.1"),
    "docs/results/suite.md": optima(),
    "docs/results/grid.md": [*grid(), *harder_grid()],
    "docs/results/mountain-car.md": mountain_car(),
    "docs/results/three-state.md": three_states(),
    "docs/results/scaling.md": [*growth("cpu"), *growth("nvidia-h200"), *limits()],
    "docs/results/notes.md": tails(),
    "docs/benchmarks.md": [*rates(), *gymnasium(), *gpu_rates(), *solvers(), *hedging(), *peers()],
    "docs/agents/adaptive.md": suite_measures("Adaptive"),
    "docs/agents/adaptive-ppo.md": suite_measures("AdaptivePPO"),
    "docs/guides/long-episodes.md": [
        row("Adaptive, share", *texts(map(horizon, LENGTHS), ".2f")),
        row("IQN, same measure, gap", *texts([gap("IQN", length) for length in LENGTHS], ".3f")),
        row("mean-trained, gap", *texts([gap("mean control", length) for length in LENGTHS], ".3f")),
        f"Adaptive has {unseen_table('out_of_the_box_squared.jsonl', 9018)} there instead of "
        f"{unseen_table('out_of_the_box.jsonl', 9018)}",
    ],
}


@pytest.mark.parametrize("page", FIGURES)
def test_figures_are_those_of_the_files(page):
    text = (ROOT / page).read_text()
    for figure in FIGURES[page]:
        assert figure in text


def test_every_run_of_adaptive_is_within_one_per_cent_of_a_deviation():
    assert close("Adaptive", "random_mdps_longer.json") == 100


# The rivals' own tasks


def test_beside_the_field():
    lines = measured("field.jsonl")
    page = (ROOT / "docs/results/beside-the-field.md").read_text()
    for line in lines:
        mean_optimal, optimum, mean = texts([line["mean_optimal"], line["optimum"], np.median(line["means"])], ".2f")
        cells = (line["task"], line["agent"], f"{line['level']:g}", span(line["values"], ".2f"), mean)
        assert row(*cells, mean_optimal, optimum) in page
    assert len({(line["steps"], line["num_envs"], line["episodes"], len(line["values"])) for line in lines}) == 1
