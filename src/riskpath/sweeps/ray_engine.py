"""Jobs on a Ray cluster: each one is a task, which Ray runs wherever there is room.

Results come back to this process, which stores them; nodes need the same versions of Python and riskpath, and no common
disk. If a node dies, Ray runs its tasks again on another one. A result is taken once, so nothing is counted twice.
"""

import contextlib
from typing import Any

from riskpath.errors import one_line
from riskpath.ray_cluster import connect, living_nodes
from riskpath.sweeps.jobs import Failure, Job, Local, Meter, attempt

NODE_RETRIES = 5
"""Number of further attempts for a task whose node or process has died."""


def engine(ray: str | None) -> "Local | OnRay":
    """Return what does the jobs: this process, or the Ray cluster at an address. Ray is imported only if asked for."""
    return Local() if ray is None else OnRay(ray)


class OnRay:
    """Does jobs as Ray tasks: one on each GPU, or on each CPU of a cluster without GPUs."""

    devices = 1

    def __init__(self, address: str):
        self._ray, self._connected_here = connect(address, "a sweep on Ray")
        have = self._ray.cluster_resources()
        kind = "GPU" if have.get("GPU") else "CPU"
        self.slots = max(1, int(have.get(kind, 1)))
        options = {"num_gpus": 1} if kind == "GPU" else {"num_cpus": 1}
        self._remote = self._ray.remote(max_retries=NODE_RETRIES, **options)(attempt)
        self._jobs: dict[Any, Job] = {}
        self._nodes: dict[str, str] = {}

    def submit(self, job: Job) -> None:
        self._jobs[self._remote.remote(job)] = job

    def wait(self, meter: Meter) -> tuple[Job, Any]:
        """Return a job that has ended, with its result; say when a node is lost."""
        ready: list[Any] = []
        while not ready:
            ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=1.0)
            meter.inside(next(iter(self._jobs.values())), 0.0)
            nodes = living_nodes(self._ray)
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
