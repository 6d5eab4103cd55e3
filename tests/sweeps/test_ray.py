"""Sweeps, the benchmark and mountain-car on a real Ray cluster of two nodes on this machine.

The numbers are the same as without it, also if a node dies.

`make test-ray` runs this file in an environment of its own.
"""

import importlib
import json
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

import riskpath as rp
from riskpath import ray_cluster
from riskpath.cli.main import main
from riskpath.experiments import reproduce_mountain_car as mountain_car
from riskpath.experiments.bench import Bench
from riskpath.ray_cluster import require_answer
from tests.ray_cluster import add_node
from tests.ray_cluster import cluster as cluster  # a fixture
from tests.sweeps.tiny_sweep import AXES, HOW, TINY, numbers

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at '127.0.0.1:1': "),
        ("ray://127.0.0.1:1", "no Ray cluster answers at 'ray://127.0.0.1:1': "),
        ("nowhere", 'a Ray address is "auto", "local" or "HOST:PORT", got \'nowhere\''),
    ],
)
def test_an_address_at_which_no_cluster_answers_is_one_line(address, message):
    with pytest.raises(rp.RiskpathError) as refused:
        require_answer(address)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("address", ["auto", "HOST:PORT of another program"])
def test_no_cluster_behind_an_address_is_one_line(address, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 15.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = address if address == "auto" else f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(rp.RiskpathError, match=r"no Ray cluster answers at .*(: | within 15)") as refused:
            require_answer(where)
    assert "\n" not in str(refused.value)


def sweep(**others: Any) -> rp.Sweep:
    return rp.sweep(TINY, "RiskyGrid", AXES, **HOW, **others)


def test_a_cluster_gives_the_same_numbers_also_if_a_node_dies(cluster, tmp_path, unchecked):
    nodes = [add_node(cluster), add_node(cluster)]
    cluster.wait_for_nodes()
    alone = sweep()
    assert numbers(sweep(ray=cluster.address, out=tmp_path / "two")) == numbers(alone)

    said: list[str] = []
    ray = importlib.import_module("ray")

    def note(line: str) -> None:  # the driver waits here until the cluster knows that the node is dead
        said.append(line)
        if len(said) == 2:
            cluster.remove_node(nodes[0], allow_graceful=False)
            while sum(node["Alive"] for node in ray.nodes()) > 2:
                time.sleep(0.1)

    result = sweep(ray=cluster.address, out=tmp_path / "one", progress=note)
    lost = [line for line in said if line.startswith("lost a node of the Ray cluster")]
    assert lost == ["lost a node of the Ray cluster, 127.0.0.1: 2 left; its cells run again elsewhere"]
    assert len(said) == 1 + len(result.lanes) // HOW["max_lanes"] + len(lost)
    assert (result.missing, result.failed) == (0, {})
    assert numbers(result) == numbers(alone) == numbers(rp.load_sweep(tmp_path / "one"))
    cells = [json.loads(file.read_text())["lanes"] for file in (tmp_path / "one" / "cells").iterdir()]
    assert len({(lane["combination"], lane["seed"]) for cell in cells for lane in cell}) == sum(map(len, cells)) == 16


def test_no_cluster_on_this_machine_is_one_line(unchecked, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    began = time.monotonic()
    with pytest.raises(rp.RiskpathError, match="no Ray cluster answers at"):
        sweep(ray="auto")
    assert time.monotonic() - began < 60


@pytest.fixture
def two_nodes(cluster) -> str:
    """Return the address of a cluster of two nodes."""
    _ = add_node(cluster), add_node(cluster)
    cluster.wait_for_nodes()
    return cluster.address


def test_the_benchmark_has_the_same_numbers(two_nodes, tmp_path, unchecked):
    chosen = ("--agents", "iqn", "mean-control", "--problems", "RiskyGrid", "--risks", "cvar:0.1", "--steps", "80")
    for name, more in {"alone": (), "ray": ("--ray", two_nodes)}.items():
        main(["bench", "suite", "--quick", *chosen, "--out", str(tmp_path / name), *more])
    alone, ray = (untimed(Bench.load(tmp_path / name).cells) for name in ("alone", "ray"))
    assert len(alone) == 2
    assert ray == alone


def test_mountain_car_has_the_same_numbers(two_nodes, tmp_path, unchecked):
    how: dict[str, Any] = {"quick": True, "seeds": 1, "steps": 1_600, "only": "control", "show": lambda _: None}
    alone = mountain_car.reproduce(tmp_path / "alone", **how)
    ray = mountain_car.reproduce(tmp_path / "ray", **how, ray=two_nodes)
    assert len(alone["records"]) == 1
    assert untimed([ray]) == untimed([alone])


def test_ctrl_c_and_sigterm_end_a_command_with_one_line(two_nodes, tmp_path):
    command = [sys.executable, "-m", "riskpath", "reproduce", "mountain-car", "--quick", "--ray", two_nodes]
    command += ["--out", str(tmp_path / "car")]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as process:
            assert process.stderr is not None
            while process.stderr.readline() != "0 of 4 cells done\n":
                assert process.poll() is None
            time.sleep(3)
            process.send_signal(number)
            lines = process.stderr.read().splitlines()
        assert process.returncode == 130
        assert lines == ["riskpath: interrupted: 8 runs are left; the same command continues with them"]
    assert not (tmp_path / "car").exists()


def untimed(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if not key.startswith("seconds")} for one in results]
