"""The benchmark: scores, references, stored cells, tables and figures; one tiny training from end to end."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import riskpath as rp
from riskpath.experiments import bench_cells, bench_suite
from riskpath.experiments.bench import Bench
from riskpath.experiments.bench_cells import Cell, kind_of, plan
from riskpath.experiments.bench_scores import (
    FILE,
    Reference,
    has_share,
    profile,
    rows,
    shares_by_agent,
    solve_reference,
    suite_values,
)
from riskpath.experiments.bench_suite import (
    AGENTS,
    PROBLEMS,
    RISKS,
    SIZES,
    as_entrants,
    as_problems,
    hyperparameters,
)
from riskpath.mdp import policy_evaluation
from riskpath.mdp.law import Law
from tests.cli.conftest import NETWORK, TRAINING
from tests.conftest import without_training

ROOT = Path(__file__).parents[2]
TINY = rp.IQN(rp.CVaR(0.1), discount=1.0, network=NETWORK, training=TRAINING)


def result(risk: str, values: list[float], reference: Reference, low: float = 0.0, high: float = 0.0) -> dict[str, Any]:
    return {"risk": risk, "values": values, "low": low, "high": high, "episodes": None, **reference._asdict()}


def cell(agent: str, problem: str, *results: dict[str, Any]) -> dict[str, Any]:
    how = {"seeds": 2, "steps": 100, "seconds": 1.0, "device": "cpu", "versions": {"riskpath": "0"}}
    return {"agent": agent, "problem": problem, "kind": "cvar", **how, "results": list(results)}


GRID = Reference(80.0, 102.8, 69.3)
FLAT = Reference(112.0, 112.0, 46.7)
CELLS = [
    cell("mean control", "probe grid", result("cvar:0.1", [80.0, 80.0], GRID, 80.0, 80.0)),
    cell("IQN", "probe grid", result("cvar:0.1", [102.0, 68.6], GRID, 60.0, 102.8)),
    cell("Adaptive", "probe grid", result("cvar:0.1", [102.8, 102.8], GRID, 102.8, 102.8)),
    cell("Adaptive", "ThreeState", result("cvar:0.25", [112.0, 110.0], FLAT, 109.0, 112.0)),
]


@pytest.mark.parametrize(
    ("values", "low", "high", "share", "share_ends", "gap", "gap_ends"),
    [
        ([80.0, 80.0], 80.0, 80.0, 0.0, (0.0, 0.0), 22.8, (22.8, 22.8)),
        ([102.8, 102.8], 102.8, 102.8, 1.0, (1.0, 1.0), 0.0, (0.0, 0.0)),
        ([91.4, 91.4], 85.7, 97.1, 0.5, (0.25, 0.75), 11.4, (5.7, 17.1)),
        ([57.2, 102.8], 34.4, 125.6, 0.0, (-2.0, 2.0), 22.8, (-22.8, 68.4)),
    ],
)
def test_scores(values, low, high, share, share_ends, gap, gap_ends):
    (row,) = rows([cell("IQN", "probe grid", result("cvar:0.1", values, GRID, low, high))])
    assert row["share"] == pytest.approx(share)
    assert (row["share_low"], row["share_high"]) == pytest.approx(share_ends)
    assert row["gap"] == pytest.approx(gap)
    assert (row["gap_low"], row["gap_high"]) == pytest.approx(gap_ends)
    assert row["value"] == pytest.approx(np.mean(values))
    assert {"steps", "seconds", "device", "versions", "seeds", "optimum", "mean_optimal"} <= row.keys()


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        (Reference(0.0, 0.6, 10.0), True),
        (Reference(0.0, 0.4, 10.0), False),
        (Reference(0.0, 0.5, 10.0), True),
        (Reference(5.0, 5.0, 10.0), False),
        (Reference(5.0, 5.0, None), False),
        (Reference(5.0, 5.1, None), True),
    ],
)
def test_a_share_needs_an_advantage_of_five_percent_of_the_spread(reference, shown):
    (row,) = rows([cell("IQN", "x", result("mean", [5.0], reference, 5.0, 5.0))])
    assert has_share(reference) is shown
    assert (row["share"] is not None) is shown
    assert row["gap"] == pytest.approx(reference.optimum - 5.0)


def compact(result: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `suite_values.json` from that of `suite_optima.json`."""
    problems = {}
    for record in result["records"]:
        measures: dict[str, list[float]] = {}
        for cell in record["cells"]:
            if cell["policies"] == "mean-optimal":
                measures[cell["risk"]] = [cell["value"], cell["value"]]
            elif cell["policies"] in ("adaptive", "randomised") and "value" in cell:
                pair = measures[cell["risk"]]
                pair[1] = max(pair[1], cell["value"])
        law = record["laws"]["mean-optimal"]
        total = sum(law["probs"])
        spread = Law(law["atoms"], [prob / total for prob in law["probs"]]).std
        problems[record["problem"]] = {"spread": round(spread, 6), "measures": measures}
    return {"command": result["command"], "problems": problems}


def test_packaged_references_are_those_of_the_committed_optima():
    committed = json.loads((ROOT / "results" / "suite_optima.json").read_text())
    packaged = json.loads((ROOT / "src" / "riskpath" / "experiments" / FILE).read_text())
    assert packaged == compact(committed), (
        "write compact(…) to suite_values.json after `riskpath reproduce suite-optima`"
    )
    values = suite_values()
    assert set(PROBLEMS) - set(values) == {"RandomMDP:2"}
    assert values["BettingGame"]["cvar:0.25"][:2] == pytest.approx((-15.519, 36.513), abs=1e-3)
    assert values["Inventory"]["wang:0.75"].optimum == pytest.approx(369.52, abs=0.01)  # of randomised policies


@pytest.mark.parametrize(
    ("name", "risk"), [("ThreeState", "cvar:0.1"), ("probe grid", "cvar:0.1"), ("RiskyGrid", "wang:0.75")]
)
def test_solving_gives_the_packaged_references(name, risk):
    (problem,) = as_problems(name)
    known = problem.reference(risk)
    assert known is suite_values()[name][risk]
    assert solve_reference(problem.env.mdp(), risk) == pytest.approx(known, rel=1e-5)


def test_another_problem_with_the_name_of_the_suite_is_solved():
    (problem,) = as_problems(rp.RiskyGrid(p_yellow=0.8, blue=38.0))
    assert problem.name == "RiskyGrid"
    assert problem.reference("cvar:0.1").optimum == pytest.approx(102.8)


def test_plan_trains_the_measures_that_an_agent_optimises():
    problems = as_problems(["probe grid"])
    cells = plan(as_entrants(None), problems, list(RISKS), 8, lambda problem: SIZES[problem.size])
    kinds: dict[str, dict[str, tuple[str, ...]]] = {}
    for one in cells:
        kinds.setdefault(one.entrant.name, {})[one.kind] = one.risks
    levels = tuple(risk for risk in RISKS if risk.startswith("cvar"))
    assert kinds["mean control"] == {"mean": RISKS}
    assert kinds["CVaR-DRL"] == {"cvar": levels}
    assert kinds["QR-SRM"] == {"cvar": levels, "wang": ("wang:-0.75",), "pow": ("pow:-2",)}
    for name in ("IQN", "TQL", "Adaptive"):
        assert [*kinds[name]] == ["cvar", "wang", "pow", "cpw"]
    assert len({one.file for one in cells}) == len(cells)
    assert [str(agent.risk) for agent in cells[0].agents()] == ["mean"]
    for one in cells:
        for agent in one.agents():
            assert (agent.discount, agent.network.hidden) == (1.0, (128, 128))


def test_sizes_and_schedules():
    assert [problem.size for problem in as_problems(["RandomMDP:7", "MeanReversionTrading"])] == ["small", "large"]
    for size in ("small", "large"):
        training = hyperparameters(SIZES[size])["training"]
        assert (training.learning_rate, training.final_learning_rate, training.decay_ends) == (1e-3, 1e-5, 0.9)
        assert SIZES[size]["episodes"] >= 20_000
    short = hyperparameters({**SIZES["small"], "steps": 400})["training"]
    assert short.learning_starts == 100


@pytest.mark.parametrize(("risk", "kind"), [("cvar:0.1", "cvar"), ("mean", "mean"), ("0.5*mean+0.5*cvar:0.1",) * 2])
def test_kinds_of_measures(risk, kind):
    assert kind_of(risk) == kind


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """Replace training by a stored result, and return the names of the cells that are trained."""
    names = []

    def run(self: Cell, report: Any = None) -> dict[str, Any]:
        names.append(self.name)
        results = [result(risk, [1.0, 2.0], GRID, 1.0, 2.0) for risk in self.risks]
        return {**cell(self.entrant.name, self.problem.name, *results), "configuration": self.configuration()}

    monkeypatch.setattr(Cell, "run", run)
    return names


ARGUMENTS: dict[str, Any] = {
    "agents": ["IQN", "cvar-drl"],
    "problems": "ThreeState",
    "risks": ["cvar:0.1", "wang:0.75"],
}


def test_finished_cells_are_not_trained_again(trained, tmp_path):
    lines = []
    first = rp.bench(**ARGUMENTS, out=tmp_path, only="wang")
    assert trained == ["IQN on ThreeState, wang"]
    assert first.missing == ["IQN on ThreeState, cvar", "CVaR-DRL on ThreeState, cvar"]
    whole = rp.bench(**ARGUMENTS, out=tmp_path, progress=lines.append)
    assert trained[1:] == first.missing
    assert whole.missing == []
    assert [row["risk"] for row in whole.table()] == ["cvar:0.1", "wang:0.75", "cvar:0.1"]
    assert lines[0] == "1 of 3 cells done"
    assert lines[1].startswith(("2 of 3 cells done, about ", "2 of 3 cells done, at most "))
    again = rp.bench(**ARGUMENTS, out=tmp_path)
    assert len(trained) == 3
    assert again.cells == whole.cells
    assert sorted(path.name for path in (tmp_path / "cells").iterdir()) == [
        "cvar_drl-threestate-cvar.json",
        "iqn-threestate-cvar.json",
        "iqn-threestate-wang.json",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 500}, "has another configuration (learning_starts 16000, not 125)"),
        ({"seeds": 3}, "has another configuration (seeds 8, not 3)"),
        ({"risks": ["cvar:0.2"]}, "has another configuration (level 0.1, not 0.2)"),
        ({"risks": ["cvar:0.1", "cvar:0.2"]}, "has another configuration (agent with 1 entries, not 2)"),
        ({"problems": {"ThreeState": rp.RiskyGrid()}}, "has another configuration (environment "),
    ],
)
def test_a_cell_of_another_configuration_is_refused(trained, tmp_path, change, message):
    same = {**ARGUMENTS, "agents": "IQN", "risks": ["cvar:0.1"]}
    rp.bench(**same, out=tmp_path)
    with pytest.raises(rp.RiskpathError) as refused:
        rp.bench(**{**same, **change}, out=tmp_path)
    assert message in str(refused.value)
    assert "iqn-threestate-cvar.json" in str(refused.value)
    assert str(refused.value).endswith("give another folder, or remove it")
    assert len(trained) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"configuration": {}}', '{"configuration": {}, "results": []}'])
def test_a_damaged_cell_is_one_line(trained, tmp_path, text):
    file = tmp_path / "cells" / "iqn-threestate-cvar.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(rp.RiskpathError, match="is damaged: remove it to train IQN on ThreeState, cvar again"):
        rp.bench("IQN", "ThreeState", "cvar:0.1", out=tmp_path)
    assert trained == []


def test_an_interrupted_benchmark_returns_what_is_finished(trained, tmp_path, monkeypatch):
    run = Cell.run

    def second(self: Cell, report: Any = None) -> dict[str, Any] | None:
        return None if trained else run(self, report)

    monkeypatch.setattr(Cell, "run", second)
    part = rp.bench(**ARGUMENTS, out=tmp_path)
    assert (len(part.cells), len(part.missing)) == (1, 2)
    monkeypatch.setattr(Cell, "run", run)
    assert rp.bench(**ARGUMENTS, out=tmp_path).missing == []
    assert len(trained) == 3


def test_a_cell_that_fails_is_left_out(trained, tmp_path, monkeypatch):
    run = Cell.run

    def diverge(self: Cell, report: Any = None) -> dict[str, Any] | None:
        if self.kind == "wang":
            stopped: Any = None
            raise rp.TrainingStopped("the loss was not a finite number", stopped)
        return run(self, report)

    monkeypatch.setattr(Cell, "run", diverge)
    lines = []
    part = rp.bench(**ARGUMENTS, out=tmp_path, progress=lines.append)
    assert part.failed == {"IQN on ThreeState, wang": "the loss was not a finite number"}
    assert part.missing == ["IQN on ThreeState, wang"]
    assert lines[2].startswith("2 of 3 cells done, about 0 s left: CVaR-DRL on ThreeState")
    assert "IQN on ThreeState, wang, the loss was not a finite number" in lines[3]  # tried again, at the end


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agents": ["DQN"]}, r"unknown agent 'DQN' \(did you mean IQN\?\); there are mean control, IQN"),
        ({"agents": [3]}, "an agent of a benchmark is a name, an agent or its class; got 3"),
        ({"agents": []}, "give at least one agent"),
        ({"agents": [TINY, rp.IQN()]}, "two agents are called IQN; give a dictionary with a name for each"),
        ({"agents": "cvar-drl", "risks": "wang:0.75"}, "none of these agents optimises wang:0.75"),
        ({"problems": ["Chess"]}, "unknown problem 'Chess'; there are ThreeState"),
        ({"problems": 3}, "a benchmark takes a list or a dictionary of agents and problems, got 3"),
        ({"problems": rp.RiskyMountainCar()}, "RiskyMountainCar cannot be solved exactly: give rp.BenchProblem"),
        (
            {"problems": rp.BenchProblem(rp.RiskyMountainCar(), {"mean": (1.0, 2.0)})},
            "RiskyMountainCar needs the mean-optimal value and the optimum of cvar:0.1; it has those of mean",
        ),
        ({"risks": "cvar:2"}, r"CVaR level must be in \(0, 1\], got 2"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"only": "chess"}, "no cell has 'chess' in its name; there are IQN on ThreeState, cvar"),
    ],
)
def test_mistakes_are_one_line(trained, unchecked, arguments, message):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        rp.bench(**{"agents": "IQN", "problems": "ThreeState", "risks": "cvar:0.1", **arguments})
    assert "\n" not in str(refused.value)
    assert trained == []


def test_a_problem_that_cannot_be_solved_needs_its_values():
    car = rp.BenchProblem(rp.RiskyMountainCar(), {"cvar:0.1": (1.0, 2.0)}, spread=3.0)
    (problem,) = as_problems(car)
    assert problem.reference("cvar:0.1") == Reference(1.0, 2.0, 3.0)
    with pytest.raises(rp.RiskpathError, match="RiskyMountainCar needs the mean-optimal value and the optimum of mean"):
        problem.reference("mean")


def test_markdown():
    text = Bench(CELLS).markdown()
    shares, gaps = text.split("## Gap to the optimum")
    assert (
        "| probe grid | cvar:0.1 | 80 | 102.8 | 0.00 [0.00, 0.00] | 0.23 [−0.88, 1.00] | 1.00 [1.00, 1.00] |" in shares
    )
    assert "ThreeState" not in shares
    assert "| ThreeState | cvar:0.25 | 112 | 112 |  |  | 1.0 [0.0, 3.0] |" in gaps
    assert "| 22.8 [22.8, 22.8] | 18 [0, 43] | 0 |" in gaps


def test_profiles_count_runs_with_at_least_a_share():
    shares = shares_by_agent(CELLS)
    assert [(agent, one.shape) for agent, one in shares.items()] == [
        ("mean control", (1, 2)),
        ("IQN", (1, 2)),
        ("Adaptive", (1, 2)),
    ]
    assert shares["IQN"] == pytest.approx(np.array([[22 / 22.8, -0.5]]))
    levels = np.array([-1.0, -0.5, 0.0, 0.9, 1.0])
    assert profile(shares["IQN"], levels)[0] == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.0])
    assert profile(shares["mean control"], levels)[0] == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0])
    part, (low, high) = profile(shares["Adaptive"], levels)
    assert part == pytest.approx(np.ones(5))
    assert (low == high).all()
    _, (low, high) = profile(shares["IQN"], levels)
    assert (low[2], high[2]) == (0.0, 1.0)


def test_profiles_compare_what_all_agents_were_trained_for():
    def cell(agent: str, *tasks: tuple[str, str, float]) -> list[dict[str, Any]]:
        number = {"mean_optimal": 0.0, "optimum": 1.0, "spread": 1.0}
        return [
            {"agent": agent, "problem": problem, "results": [{"risk": risk, "values": [value], **number}]}
            for problem, risk, value in tasks
        ]

    one = cell("one", ("p", "cvar:0.1", 0.1), ("q", "cvar:0.1", 0.2), ("q", "wang:-0.75", 0.3))
    two = cell("two", ("q", "cvar:0.1", 0.4), ("q", "cvar:0.5", 0.5))
    shares = shares_by_agent(one + two)
    assert {agent: found.tolist() for agent, found in shares.items()} == {"one": [[0.2]], "two": [[0.4]]}
    apart = shares_by_agent(one[:1] + two)
    assert {agent: found.tolist() for agent, found in apart.items()} == {"one": [[0.1]], "two": [[0.4], [0.5]]}
    assert shares_by_agent([]) == {}


def test_figures_and_files(tmp_path):
    benchmark = Bench(CELLS, ["TQL on probe grid, cvar"], {}, "riskpath bench suite")
    axes: Any = Figure().subplots()
    assert benchmark.plot_heat_map(axes) is axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["mean control", "IQN", "Adaptive"]
    assert [text.get_text() for text in axes.texts] == ["0.00", "0.23", "1.00", "–", "–", "gap 1"]
    lines = benchmark.plot_profiles()
    assert len(lines.lines) == 4
    files = benchmark.save(tmp_path)
    assert [path.name for path in files] == ["bench.json", "bench.md", "bench_heat_map.png", "bench_profiles.png"]
    assert Bench.load(tmp_path) == benchmark
    (tmp_path / "bench.json").write_text("{}")
    with pytest.raises(rp.RiskpathError, match="is not the result of a benchmark"):
        Bench.load(tmp_path)


@pytest.mark.parametrize("draw", [Bench.plot_heat_map, Bench.plot_profiles])
def test_nothing_to_draw_is_one_line(draw):
    with pytest.raises(rp.RiskpathError, match="needs"):
        draw(Bench([]))


def test_a_number_of_quantiles_is_that_of_agents_by_name(monkeypatch):
    found = []
    monkeypatch.setattr("riskpath.experiments.bench.run_jobs", lambda cells, *_, **__: found.extend(cells) or {})
    rp.bench({"named": "Adaptive", "own": TINY}, rp.RiskyGrid(), ["cvar:0.1"], steps=80, quantiles=48)
    taus = {
        cell.name: {(t.num_quantiles, t.num_target_quantiles) for t in (a.training for a in cell.agents())}
        for cell in found
    }
    own = (TINY.training.num_quantiles, TINY.training.num_target_quantiles)
    assert taus == {"named on RiskyGrid, cvar": {(48, 48)}, "own on RiskyGrid, cvar": {own}}


def test_a_tiny_benchmark_from_end_to_end(tmp_path, unchecked, monkeypatch):
    monkeypatch.setattr(bench_cells, "RESAMPLES", 20)
    arguments: dict[str, Any] = {"risks": ["cvar:0.1", "cvar:0.5"], "seeds": 2, "steps": 80}
    first = rp.bench({"tiny": TINY}, rp.RiskyGrid(), **arguments, out=tmp_path)
    (stored,) = first.cells
    run = rp.train(
        [rp.IQN(risk, discount=1.0, network=TINY.network, training=TINY.training) for risk in arguments["risks"]],
        rp.RiskyGrid(),
        steps=80,
        seeds=2,
        num_envs=16,
        seed=bench_cells.SEED,
    )
    assert np.array([one["values"] for one in stored["results"]]) == pytest.approx(run.values())
    assert [one["optimum"] for one in stored["results"]] == pytest.approx([79.875, 156.12], abs=0.01)
    assert stored["steps"] == 80
    assert stored["versions"]["riskpath"] == rp.__version__
    assert json.loads((tmp_path / "cells" / "tiny-riskygrid-cvar.json").read_text()) == stored
    for row, one in zip(first.table(), stored["results"], strict=True):
        assert row["exact"]
        assert row["gap"] == pytest.approx(one["optimum"] - np.mean(one["values"]))
    with without_training():
        control = rp.bench({"control": dataclasses.replace(TINY, risk=rp.Mean())}, rp.RiskyGrid(), **arguments)
    (judged,) = control.cells
    assert [one["risk"] for one in judged["results"]] == arguments["risks"]  # trained once, judged by both
    assert judged["results"][0]["values"] <= judged["results"][1]["values"]

    # Policies for a large problem are judged by episodes if they distinguish many situations; with the settings of a
    # small one they are the same.
    monkeypatch.setattr(bench_suite, "SMALL_STATES", 3)
    monkeypatch.setitem(SIZES, "large", {**SIZES["small"], "episodes": 2_000})
    exact = rp.bench(TINY, rp.RiskyGrid(), **arguments)
    assert exact.cells[0]["results"] == stored["results"]
    monkeypatch.setattr(policy_evaluation, "checked_choices", lambda *_: [(0.5, "right", 1), (0.5, "right", 2)])
    monkeypatch.setattr(bench_cells, "SITUATIONS", 1)
    sampled = rp.bench(TINY, rp.RiskyGrid(), **arguments)
    large = sampled.cells[0]["results"][0]
    assert large["episodes"] == 2_000
    assert large["low"] <= np.mean(large["values"]) <= large["high"]
    assert large["values"] == pytest.approx(stored["results"][0]["values"], abs=12.0)


def test_the_agents_of_the_benchmark_have_colours():
    assert set(AGENTS) <= set(rp.plot.COLOURS)
