"""Jobs on a Ray cluster: each one is a task, which Ray runs wherever there is room.

Results come back to this process, which stores them; nodes need the same versions of Python and riskpath, and no common
disk. If a node dies, Ray runs its tasks again on another one. A result is taken once, so nothing is counted twice.
"""

import contextlib
import signal
import socket
import subprocess
import sys
from typing import Any

from riskpath.errors import RiskpathError, one_line
from riskpath.extras import require_extra
from riskpath.sweeps.jobs import Failure, Job, Local, Meter, attempt

ANSWER_SECONDS = 30.0
"""How long a cluster may take to answer."""
CONNECT = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
"""What the process does that tries an address."""
NODE_RETRIES = 5
"""Number of further attempts for a task whose node or process has died."""


def engine(ray: str | None) -> "Local | OnRay":
    """Return what does the jobs: this process, or the Ray cluster at an address. Ray is imported only if asked for."""
    return Local() if ray is None else OnRay(ray)


class OnRay:
    """Does jobs as Ray tasks: one on each GPU, or on each CPU of a cluster without GPUs."""

    devices = 1

    def __init__(self, address: str):
        self._ray, self._connected_here = _connect(address)
        have = self._ray.cluster_resources()
        kind = "GPU" if have.get("GPU") else "CPU"
        self.slots = max(1, int(have.get(kind, 1)))
        options = {"num_gpus": 1} if kind == "GPU" else {"num_cpus": 1}
        self._remote = self._ray.remote(max_retries=NODE_RETRIES, **options)(attempt)
        self._jobs: dict[Any, Job] = {}
        self._nodes: dict[str, str] = {}

    def submit(self, job: Job) -> None:
        """Send a job to the cluster."""
        self._jobs[self._remote.remote(job)] = job

    def wait(self, meter: Meter) -> tuple[Job, Any]:
        """Return a job that has ended, with its result; say when a node is lost."""
        ready: list[Any] = []
        while not ready:
            ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=1.0)
            meter.inside(next(iter(self._jobs.values())), 0.0)
            nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
            for lost in self._nodes.keys() - nodes.keys():
                rest = f"{len(nodes)} left; its cells run again elsewhere" if len(nodes) else "none left"
                meter.say(f"lost a node of the Ray cluster, {self._nodes[lost]}: {rest}")
            self._nodes = nodes
        job = self._jobs.pop(ready[0])
        try:
            return job, self._ray.get(ready[0])
        except self._ray.exceptions.RayError as error:  # the worker died too often, or the result was lost
            return job, Failure(one_line(error))

    def close(self) -> None:
        """Cancel what is left, and leave the cluster if this object has joined it."""
        for reference in self._jobs:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._jobs.clear()
        if self._connected_here:
            self._ray.shutdown()


def _connect(address: str) -> tuple[Any, bool]:
    """Return the module of Ray, connected to a cluster, and whether it was connected here."""
    ray = require_extra("ray", "ray", "a sweep on Ray")
    if ray.is_initialized():
        return ray, False
    require_answer(address)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    dashboard = False if address == "local" else None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=dashboard)
    except Exception as error:
        raise RiskpathError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from None
    if callable(on_sigterm):  # Ray has replaced it by its own, which ends the process
        with contextlib.suppress(ValueError):  # signals can be handled in the main thread only
            signal.signal(signal.SIGTERM, on_sigterm)
    return ray, True


def require_answer(address: str) -> None:
    """Refuse an address at which no cluster answers. Ray itself would try for minutes and end the process, so another
    process tries, for a limited time.
    """
    if address == "local":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (colon and port.isdigit() and host):
        raise RiskpathError(f'a Ray address is "auto", "local" or "HOST:PORT", got {address!r}')
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()  # refused at once if nothing listens
        done = subprocess.run([sys.executable, "-c", CONNECT, address], capture_output=True, timeout=ANSWER_SECONDS)
    except OSError as error:
        raise RiskpathError(f"no Ray cluster answers at {address!r}: {error}") from None
    except subprocess.TimeoutExpired:
        raise RiskpathError(f"no Ray cluster answers at {address!r} within {ANSWER_SECONDS:g} seconds") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RiskpathError(f"no Ray cluster answers at {address!r}: {reason}")
