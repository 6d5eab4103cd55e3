"""A real Ray cluster on this machine, for the tests that `make test-ray` runs.

It listens on the loopback interface only, and each test starts and stops its own.
"""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's way to say: use the loopback interface only


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Any]:
    """Start a head without work of its own, to which `add_node` adds nodes."""
    pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")
    Cluster = importlib.import_module("ray.cluster_utils").Cluster

    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.1", "object_store_memory": 10**8}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        importlib.import_module("ray").shutdown()  # training stays connected
        made.shutdown()


def add_node(cluster: Any, cpus: int = 1) -> Any:
    """Add a node, which is a process of this machine."""
    return cluster.add_node(num_cpus=cpus, node_ip_address="127.0.0.1", object_store_memory=10**8)
