"""The benchmarks import, and the agents that they measure can be made."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import as_arrays
from tests.benchmarks.conftest import FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_benchmark_imports(benchmark, path):
    module = benchmark(path.stem)
    assert module.__file__ == str(path), "two benchmarks have the same name"
    assert module.__doc__


def test_jobs_of_public_environments_name_agents_that_exist(benchmark):
    module = benchmark("public_environments")
    names = module.job_names(seeds=3, group=2)
    assert len(names) == len(set(names))
    for name in names:
        (env,), agent, measure, seeds = module.parse(name)
        assert set(seeds) <= {0, 1, 2}
        if agent not in module.PEERS:
            made = getattr(rp, agent)(measure)
            assert str(made.risk) == measure
            assert (made.actions == "continuous") == module.TASKS[env].continuous


def test_rows_of_public_environments_join_groups_of_seeds(benchmark, tmp_path, monkeypatch):
    module = benchmark("public_tables")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    about = {"env": "CartPole", "agent": "Adaptive", "steps": 10, "device": "cpu", "seconds": 1.0}
    guess = {"estimates": [90.0], "earned": [80.0], "ranges": [50.0]}
    records = [
        {**about, **guess, "risk": "mean", "seeds": [1], "means": [90.0], "cvars": [10.0]},
        {**about, **guess, "risk": "mean", "seeds": [0], "means": [80.0], "cvars": [10.5]},
        {**about, **guess, "risk": "cvar:0.25", "seeds": [0], "means": [70.0], "cvars": [60.0]},
        {**about, **guess, "risk": "cvar:0.25", "seeds": [1], "means": [70.0], "cvars": [60.5]},
    ]
    text = module.write_results(module.merge(records))
    assert module.merge([])["CartPole", "Adaptive", "mean"]["means"] == [80.0, 90.0]
    assert "| CartPole | 40,000 | Adaptive | 2 | 85.0 ± 63.5 |" in text
    assert "| CartPole | 40,000 | IQN | – | not run | not run | not run | not run | not run | not run |" in text
    found = {(question, answer): line for question, answer, line in module.checks(module.merge([])) if "Adap" in line}
    assert found[module.NOT_WORSE, module.HOLDS] == "CartPole, Adaptive (60.2 beside 10.2, ± 4.49)"
    assert found[module.ESTIMATES, module.SHORT] == "CartPole, Adaptive for the mean (20 %)"
    assert found[module.PEER, module.NOT_RUN] == "CartPole, Adaptive"


def test_agents_of_the_throughput_benchmark_have_their_sizes(benchmark):
    module = benchmark("workload")
    for size in module.SIZES.values():
        for name in module.CONTINUOUS if size.name == "continuous" else module.AGENTS:
            agent = size.agent(name)
            assert agent.network.hidden[-1] == size.width
            assert (agent.training.batch_size, agent.training.buffer_size) == (size.batch, size.buffer_size)


def test_ratios_of_two_checkouts_compare_neighbouring_spells(benchmark):
    old = [{"rate": 10.0, "cpu_rate": 20.0}, {"rate": 20.0, "cpu_rate": 20.0}, {"rate": 40.0, "cpu_rate": 20.0}]
    new = [{"rate": 11.0, "cpu_rate": 19.0}, {"rate": 22.0, "cpu_rate": 18.0}, {"rate": 20.0, "cpu_rate": 21.0}]
    row = benchmark("side_by_side").summary(old, new)
    assert (row["old"], row["new"]) == (20.0, 20.0)
    assert row["ratio"] == pytest.approx(1.1)
    assert row["ratio_by_cpu_time"] == pytest.approx(0.95)


def test_a_process_that_fails_is_reported_and_the_comparison_continues(benchmark, tmp_path, monkeypatch, capsys):
    module = benchmark("side_by_side")
    (tmp_path / "src" / "riskpath").mkdir(parents=True)  # without benchmarks
    monkeypatch.setattr(module, "RESULTS", tmp_path / "against.json")
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None, raising=False)
    module.compare(tmp_path, [module.Program("IQN", "small", "factored", 1)], 0.1, 1)
    assert "benchmarks has neither speed/workload.py nor throughput.py" in capsys.readouterr().out
    assert "failed" in json.loads((tmp_path / "against.json").read_text())["rows"][0]


def test_the_backup_is_the_maximum_over_forces(benchmark):
    """Compare with a loop over forces at some nodes, for a value that linear interpolation reproduces."""
    optimum = benchmark("mountain_car_optimum")
    env, grid = as_arrays(rp.RiskyMountainCar(c=0.5)), optimum.Grid(91, 71)
    plane = 3 * grid.x[:, None] + 40 * grid.v[None, :]
    values = jax.jit(lambda value: optimum.backup(env, grid, value, jnp.float32(0.2)))(plane)
    for i, j in ((20, 30), (40, 35), (60, 40), (30, 60)):
        x, v, options = float(grid.x[i]), float(grid.v[j]), []
        for a in optimum.ACTIONS:
            after = np.clip(v + 0.0015 * a - 0.0025 * np.cos(3 * x), -0.07, 0.07)
            size, prob = 0.5 * (2 - abs(a)), 1 / (4 - 3 * abs(a))
            reward = -0.1 * a * a - size * prob - 0.2 * size**2 * prob * (1 - prob)
            options.append(reward + 0.99 * (3 * (x + after) + 40 * after))
        assert values[i, j] == pytest.approx(max(options), abs=1e-4)


@pytest.mark.long  # one backup is compared with a loop in the test before
def test_a_coarse_optimum_beats_full_force(benchmark):
    optimum = benchmark("mountain_car_optimum")
    (record,) = optimum.cells(0.5, ["cvar:0.25"], optimum.Grid(91, 71), [0.0, 0.15], 100, 10)
    assert record["best"] == pytest.approx(23.5, abs=0.5)
    assert record["bang_bang"] == pytest.approx(-6.0, abs=1.0)
    assert record["do_nothing"] == pytest.approx(-29.0, abs=1.0)


def test_random_problems_are_twenty_of_five_to_eight_steps(benchmark):
    random = benchmark("random_mdps")
    depths = [random.problem(number).depth for number in random.PROBLEMS]
    assert len(depths) == 20
    assert set(depths) == {5, 6, 7, 8}
    listed = random.parts(["IQN", "Adaptive"], list(random.RISKS))
    assert len(listed) == 2 * 4 * 4  # agents, kinds of measures, depths
    assert listed[0] == ("IQN", "cvar", ["cvar:0.1", "cvar:0.25", "cvar:0.5"], 5)


def test_runs_near_the_optimum_are_counted(benchmark):
    random = benchmark("random_mdps")
    low = {"risk": "cvar:0.1", "optimum": -2.0, "spread": 5.0, "values": [-2.0, -2.019, -2.03, -3.0]}
    high = {"risk": "pow:-2", "optimum": 4.0, "spread": 6.0, "values": [3.97, 3.95, 3.0, 4.0]}
    assert random.near(low).tolist() == [True, True, False, False]
    table = random.summary([{"agent": "IQN", "rows": [low, high]}, {"agent": "Adaptive", "rows": [high]}])
    lines = [line.split() for line in table.splitlines()]
    assert lines == [
        ["cvar:0.1", "pow:-2", "all", "all,", "spread"],
        ["IQN", "50.0%", "50.0%", "50.0%", "75.0%"],
        ["Adaptive", "–", "50.0%", "50.0%", "75.0%"],
    ]
