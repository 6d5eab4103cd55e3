"""`train`, `evaluate` and `resume`: what they write, and that a run survives interruptions."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest

import riskpath as rp
from riskpath.cli.run_commands import _figures
from riskpath.evaluation.evaluation import Evaluation
from riskpath.report.gather_record import gather
from tests.cli.conftest import NETWORK, TINY, TRAINING
from tests.cli.test_environments import own_module as own_module  # a fixture

GRID = ("train", "--env", "RiskyGrid", "--risk", "cvar:0.2", *TINY)  # levels of one measure share a program
LAKE = (
    "train",
    "--env",
    "FrozenLake-v1",
    "--set",
    "is_slippery=false",
    "max_episode_steps=4",
    "--risk",
    "cvar:0.2",
    *TINY,
)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def logged_steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_train_equals_training_in_python_and_writes_it_down(cli, tmp_path, unchecked):
    words = ("--seed", "3", "--discount=0.9", "--agent.learning-rate", "0.03")
    status, out, _ = cli(*GRID, *words, "--set", "p_yellow=0.8", "--out", str(tmp_path))
    assert status == 0
    training = eqx.tree_at(lambda t: t.learning_rate, TRAINING, 0.03)
    agent = rp.IQN(rp.CVaR(0.2), discount=0.9, network=NETWORK, training=training)
    twin = rp.train(agent, rp.RiskyGrid(p_yellow=0.8), steps=80, seeds=2, seed=3)
    result = read(tmp_path, "result.json")
    lanes = {key: [lane[key] for lane in result["lanes"]] for key in ("value", "discounted", "estimate", "does")}
    assert lanes["value"] == pytest.approx(twin.values()[0])
    assert lanes["discounted"] == pytest.approx(twin.values(0.9)[0])
    assert lanes["estimate"] == pytest.approx(twin.estimates()[0])
    for key in ("value", "discounted", "estimate"):
        assert all(f"{value:.4g}" in out for value in lanes[key])
    assert all(len(path) >= 3 and set(path) <= set("YBO(|)") for path in lanes["does"])
    assert result["curve"][-1]["values"] == [pytest.approx(lanes["value"])]
    config = result["config"]
    assert config == read(tmp_path, "config.json")
    assert {"risk": "cvar:0.2", "discount": 0.9}.items() <= config["fields"].items()
    assert {"learning_rate": 0.03, "batch_size": 4, "kappa": None}.items() <= config["fields"]["training"].items()
    assert {"head": "table", "hidden": [64], "window": None}.items() <= config["fields"]["network"].items()
    sizes = {"agent": "IQN", "steps": 80, "seeds": 2, "num_envs": 1, "seed": 3}
    assert {"env": "RiskyGrid", "set": ["p_yellow=0.8"], **sizes}.items() <= config.items()


def test_the_measure_with_the_floor_is_printed_as_well():
    returns = np.random.default_rng(0).normal(size=(1, 2, 400))
    rows = _figures(Evaluation(returns, returns, [rp.Mean()], 1.0), 0, None, None, rp.CVaR(0.1))
    assert [row["figure"] for row in rows if row["return"] == "discounted"] == ["mean", "cvar:0.1"]
    tail = next(row["value"] for row in rows if row["figure"] == "cvar:0.1")
    assert tail.low < np.mean([rp.CVaR(0.1).value(one) for one in returns[0]]) < tail.high


@pytest.mark.long  # tests/agents has floors
def test_a_run_with_a_floor_serves_others_and_shows_them_in_its_report(cli, tmp_path, unchecked):
    folder, sizes = str(tmp_path / "x"), ("--agent.batch-size", "4", "--agent.num-quantiles", "4", "--steps", "300")
    options = ("--agent", "adaptive", "--env", "RiskyGrid", "--risk", "mean", "--subject-to", "cvar:0.1=75")
    assert (
        cli("train", *options, *sizes, "--agent.hidden", "8", "--agent.learning-starts", "40", "--out", folder)[0] == 0
    )
    _, out, _ = cli("evaluate", folder, "--floor", "79", "--episodes", "50", "--json")
    assert "cvar:0.1" in {row["figure"] for row in json.loads(out)["figures"]}
    assert "mean with cvar:0.1 ≥ 75" in cli("evaluate", folder, "--episodes", "50")[1]
    _, out, _ = cli("frontier", folder, "--floors", "79", "75", "--episodes", "50")
    assert "best mean" in out
    record = gather(rp.load(tmp_path / "x" / "run"))
    assert record.floors is not None
    assert 75.0 in record.floors.floors
    assert len(record.floors.values) == len(record.floors.floors) == len(record.floors.best_means or ())


@pytest.mark.long  # a run on an own environment is, below
def test_a_gymnasium_run_is_evaluated_and_resumed(cli, tmp_path, unchecked):
    folder = tmp_path / "x"
    status, out, _ = cli(*LAKE, "--out", str(folder))
    assert status == 0
    assert "own estimate" in out
    assert logged_steps(folder)[-1] >= 80
    assert len(json.loads((folder / "log.jsonl").read_text().splitlines()[-1])["loss"]) == 2
    status, out, _ = cli("evaluate", str(folder), "--episodes", "4", "--risk", "cvar:0.5", "--json")
    figures = json.loads(out)["figures"]
    quantiles = [f"{level} quantile" for level in ("5%", "25%", "50%", "75%", "95%")]
    assert [row["figure"] for row in figures] == ["mean", "cvar:0.5", *quantiles, "mean", "cvar:0.5"]
    assert [row["return"] for row in figures] == ["undiscounted"] * 7 + ["discounted"] * 2
    assert figures[0]["low"] <= figures[0]["estimate"] <= figures[0]["high"]
    table = cli("evaluate", str(folder), "--episodes", "4")[1]
    assert all(name in table for name in quantiles)
    status, _, err = cli("resume", str(folder))
    assert status == 2
    assert "is finished, at" in err
    status, out, _ = cli("resume", str(folder), "--steps", "20")
    assert status == 0
    assert "own estimate" in out
    steps = read(folder, "result.json")["steps"]
    assert steps >= 100
    assert logged_steps(folder) == sorted(set(logged_steps(folder)))


def test_only_a_run_is_overwritten(cli, tmp_path, unchecked):
    folder = tmp_path / "x"
    assert cli(*GRID, "--out", str(folder))[0] == 0
    files = contents(folder)
    status, out, err = cli(*GRID, "--out", str(folder))
    assert (status, out) == (2, "")
    assert f"riskpath resume {folder} continues it, --overwrite replaces it" in err
    assert contents(folder) == files
    assert cli(*GRID, "--out", str(folder), "--overwrite", "--seed", "1")[0] == 0
    assert logged_steps(folder) == sorted(set(logged_steps(folder)))
    files = contents(folder)
    status, out, _ = cli(*GRID, "--out", str(folder), "--overwrite", "--env", "RiskyMountainCar")
    assert (status, out) == (2, "")  # IQN cannot act there
    assert contents(folder) == files
    status, out, _ = cli(*GRID, "--out", str(tmp_path / "z"), "--env", "Pendulum-v1")
    assert (status, out) == (2, "")
    assert not (tmp_path / "z").exists()


@pytest.mark.parametrize(
    ("number", "background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_an_interrupted_run_is_saved_and_continued(number, background, cli, tmp_path, monkeypatch, unchecked):
    write = rp.JSONLines.__call__
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if background else signal.default_int_handler)

    def interrupting(self, run, numbers):
        write(self, run, numbers)
        if numbers["step"] >= 60:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(rp.JSONLines, "__call__", interrupting)
        status, out, err = cli(*GRID, "--out", str(tmp_path))
    signal.signal(signal.SIGINT, before)
    assert status == 130
    assert "own estimate" not in out  # to compile an evaluation takes long
    assert not (tmp_path / "result.json").exists()
    assert f"riskpath: stopped after 60 of 80 steps; riskpath resume {tmp_path} continues it" in err
    assert cli("resume", str(tmp_path))[0] == 0
    result = read(tmp_path, "result.json")
    assert result["steps"] == 80
    assert result["curve"][-1]["step"] == 80
    assert logged_steps(tmp_path) == sorted(set(logged_steps(tmp_path)))


@pytest.mark.long  # an interrupted run is continued above
def test_a_killed_run_is_continued_from_its_last_checkpoint_without_double_lines(cli, tmp_path, unchecked):
    """Kill a real process between two checkpoints; the result is that of an uninterrupted run, bit for bit."""
    folder, steps = tmp_path / "x", 4_000
    words = [*GRID, "--steps", str(steps), "--checkpoint-steps", "1000", "--out", str(folder)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-m", "riskpath", *words], stdout=subprocess.DEVNULL, env=environment)
    log, before = folder / "log.jsonl", time.monotonic()
    try:
        while not (log.exists() and any(step > 1_200 for step in _whole_lines(log))):
            assert process.poll() is None, "training ended before it was killed"
            assert time.monotonic() - before < 240
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    assert rp.load(folder).steps >= 1_000  # the checkpoint interval was heard
    with log.open("a") as file:
        file.write(f'{{"step": {steps - 1}}}\n{{"st')  # a line after the last checkpoint, and half a line
    assert cli("resume", str(folder))[0] == 0
    recorded = logged_steps(folder)
    assert recorded == sorted(set(recorded))
    assert steps - 1 not in recorded
    agent = rp.IQN("cvar:0.2", network=NETWORK, training=TRAINING)
    whole = rp.train(agent, "RiskyGrid", steps=steps, seeds=2)
    lanes = read(folder, "result.json")["lanes"]
    np.testing.assert_array_equal([lane["estimate"] for lane in lanes], whole.estimates()[0])
    assert recorded[-1] == whole.steps


def _whole_lines(log: Path) -> list[int]:
    return [json.loads(line)["step"] for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_resume_keeps_the_checkpoint_intervals_and_accepts_others(cli, tmp_path, monkeypatch, unchecked):
    made, first, second = [], tmp_path / "a", tmp_path / "b"

    class Recording(rp.Checkpointer):
        def __post_init__(self):
            super().__post_init__()
            made.append((self.every_seconds, self.every_steps, self.overwrite))

    monkeypatch.setattr("riskpath.cli.run_commands.Checkpointer", Recording)
    options = ("--checkpoint-every", "7", "--checkpoint-steps", "30", "--overwrite")
    assert cli(*GRID, *options, "--out", str(first))[0] == 0
    shutil.copytree(first, second)
    assert cli("resume", str(first), "--steps", "20")[0] == 0
    others = ("--checkpoint-every", "9", "--checkpoint-steps", "20")
    assert cli("resume", str(second), "--steps", "20", *others)[0] == 0
    assert made == [(7.0, 30, True), (7.0, 30, False), (9.0, 20, False)]


@pytest.mark.parametrize(
    ("name", "field"), [("Lake-v0", "prize=2.0"), pytest.param("Grid", "p_yellow=0.5", marks=pytest.mark.long)]
)
def test_a_run_on_an_own_environment_is_evaluated_and_resumed(cli, own_module, tmp_path, unchecked, name, field):
    env, folder = f"{own_module}:{name}", str(tmp_path / "x")
    assert cli("train", "--env", env, "--set", field, "--risk", "cvar:0.2", *TINY, "--out", folder)[0] == 0
    for command in ("evaluate", "resume", "frontier"):
        status, _, err = cli(command, folder)
        assert (status, f"give --env {env}" in err) == (2, True)
    status, _, err = cli("frontier", folder, "--env", env)  # the run is read, and IQN has no frontier
    assert (status, "cannot serve cvar" in err) == (2, True)
    status, out, _ = cli("evaluate", folder, "--env", env, "--episodes", "3", "--json")
    assert status == 0
    if name == "Lake-v0":  # two rounds with the prize that training had set
        assert json.loads(out)["figures"][0]["estimate"] == 4.0
    status, _, err = cli("resume", folder, "--env", env, "--steps", "20")
    assert (status, err) == (0, "")
    assert read(tmp_path / "x", "result.json")["steps"] == 100
    assert logged_steps(tmp_path / "x")[-1] == 100


def test_a_run_saved_by_python_on_an_own_environment_is_read(cli, own_module, tmp_path, monkeypatch, unchecked):
    env, folder = f"{own_module}:Lake-v0", str(tmp_path / "x")
    monkeypatch.syspath_prepend(tmp_path)
    rp.train(rp.IQN("cvar:0.2", network=NETWORK, training=TRAINING), env, steps=80, seeds=2).save(folder)
    page = ("--out", str(tmp_path / "report.html"))
    for words in (("evaluate", folder), ("report", folder, *page)):
        status, _, err = cli(*words)
        assert (status, "give --env MODULE:NAME" in err) == (2, True)
    assert cli("evaluate", folder, "--env", env, "--episodes", "3")[0] == 0
    assert cli("report", folder, "--env", env, *page)[0] == 0


def test_a_run_is_evaluated_in_another_environment_of_the_same_sizes(cli, tmp_path, unchecked):
    agent = rp.IQN(rp.CVaR(0.5), network=NETWORK, training=TRAINING)
    rp.train(agent, "RiskyGrid", steps=80, seeds=2).save(tmp_path / "saved")
    words = ("evaluate", str(tmp_path / "saved"), "--episodes", "3", "--json", "--env", "RiskyGrid")
    status, out, _ = cli(*words, "--set", "blue=1000", "yellow=1000", "p_yellow=1.0")
    means = [row["estimate"] for row in json.loads(out)["figures"] if row["figure"] == "mean"]
    assert status == 0
    assert means[0] > 900
    status, _, err = cli(*words, "--set", "forks=2")
    assert status == 2
    assert "another number of states than the one trained on" in err


def test_a_folder_of_a_plain_save_is_evaluated_and_resumed_in_place(cli, tmp_path, unchecked):
    agents = [rp.IQN(rp.CVaR(level), network=NETWORK, training=TRAINING) for level in (0.2, 0.8)]
    folder = tmp_path / "saved"
    rp.train(agents, "RiskyGrid", steps=80).save(folder)
    status, out, _ = cli("evaluate", str(folder), "--episodes", "3", "--json")
    figures = json.loads(out)["figures"]
    assert [(row["setting"], row["figure"]) for row in figures][1::9] == [(0, "cvar:0.2"), (1, "cvar:0.8")]
    exact = [row["exact"] for row in figures]
    assert exact[1::9] == pytest.approx(rp.load(folder).values().mean(axis=1).tolist())
    assert exact[2] <= exact[4] == rp.load(folder).law().quantile(0.5)  # of the 5 % and 50 % quantiles
    assert exact[7:9] == [None, None]  # of discounted returns
    status, _, _ = cli("resume", str(folder), "--steps", "20")
    assert status == 0
    assert rp.load(folder).steps == 100
    assert {file.name for file in folder.iterdir()} == {"header.json", "state.eqx", "curve.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_configuration_repeats_a_run(cli, tmp_path, unchecked):
    first, second = tmp_path / "a", tmp_path / "b"
    assert cli(*GRID, "--set", "p_yellow=0.8", "--out", str(first))[0] == 0
    status, _, _ = cli("train", f"--config={first / 'config.json'}", "--out", str(second))
    assert status == 0
    assert read(first, "config.json") == read(second, "config.json")
    assert read(first, "result.json")["lanes"] == read(second, "result.json")["lanes"]
