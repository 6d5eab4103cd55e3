"""Several processes train the seeds of one experiment, connected by `jax.distributed` on the loopback interface.

Each has two CPU devices. The lanes are those of one process, and every process gets all of the values.
"""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import riskpath as rp
from tests.sweeps.tiny_sweep import TINY

PROCESSES, EACH = 2, 2
"""Processes, and seeds and devices of each of them."""
AGENT = dataclasses.replace(TINY, network=rp.Network(head="table"))


def train(seeds: int, first_seed: int = 0) -> rp.Run:
    """Train some of the seeds."""
    return rp.train(AGENT, "ThreeState", steps=80, seeds=seeds, first_seed=first_seed)


def one_of_several(coordinator: str, number: int, out: str) -> None:
    """Train the seeds of one process, and write what it knows in the end."""
    import jax
    from jax.experimental.multihost_utils import process_allgather

    jax.distributed.initialize(coordinator, num_processes=PROCESSES, process_id=number)
    run = train(EACH, first_seed=EACH * number)
    values = process_allgather(run.estimates()[0])
    run.save(f"{out}/run{number}")
    again = rp.train(rp.load(f"{out}/run{number}"), steps=10)
    action, _ = again.policy(1)("s0")
    facts = {
        "devices": [jax.local_device_count(), jax.device_count()],
        "used": len(run.lanes.keys.sharding.device_set),
        "estimates": np.asarray(values).ravel().tolist(),
        "action": str(action),
        "steps": again.steps,
    }
    Path(out, f"{number}.json").write_text(json.dumps(facts))


@pytest.mark.long
def test_two_processes_train_the_seeds_of_one(tmp_path, unchecked):
    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={EACH}"
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(map(str, (root / "src", root)))
    environ = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    program = f"from {__name__} import *; one_of_several({coordinator!r}, int(sys.argv[1]), {str(tmp_path)!r})"
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(number)], env=environ) for number in range(PROCESSES)
    ]
    alone = train(PROCESSES * EACH)
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    facts = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(PROCESSES)]
    for one in facts:
        assert one["devices"] == [EACH, PROCESSES * EACH]
        assert one["used"] == EACH
        assert one["estimates"] == alone.estimates()[0].tolist()  # agents with tables keep every bit
        assert one["steps"] == 90
        assert one["action"]
