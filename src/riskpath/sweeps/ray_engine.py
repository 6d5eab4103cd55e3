"""Jobs on a Ray cluster: each one is a task, which Ray runs wherever there is room.

Results come back to this process, which stores them; nodes need the same versions of Python and riskpath, and no common
disk. If a node dies, Ray runs its tasks again on another one. A result is taken once, so nothing is counted twice.
"""

import contextlib
import importlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from riskpath.errors import RiskpathError, one_line
from riskpath.extras import require_extra
from riskpath.sweeps.jobs import Failure, Job, Local, attempt

ANSWER_SECONDS = 10.0
"""How long an address may take to answer."""
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first frame of each side of HTTP/2, on which Ray's protocol is built; the fourth byte is its kind."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS
NODE_RETRIES = 5
"""How often Ray runs a task again whose node or process has died."""
LOCAL_NAMES = ("auto", "local")


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

    def submit(self, job: Job) -> None:
        """Send a job to the cluster."""
        self._jobs[self._remote.remote(job)] = job

    def wait(self, report: Callable[[Job, float], None]) -> tuple[Job, Any]:
        """Return a job that has ended, with its result."""
        ready: list[Any] = []
        while not ready:
            ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=1.0)
            report(next(iter(self._jobs.values())), 0.0)
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
    require_answer(_last_cluster() or address if address == "auto" else address)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=_dashboard(address))
    except Exception as error:
        raise RiskpathError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from None
    if callable(on_sigterm):  # Ray has replaced it by its own, which ends the process
        with contextlib.suppress(ValueError):  # signals can be handled in the main thread only
            signal.signal(signal.SIGTERM, on_sigterm)
    return ray, True


def _last_cluster() -> str | None:
    """Return the address that "auto" stands for, as far as Ray says; the cluster there may be gone."""
    with contextlib.suppress(Exception):  # not public
        return importlib.import_module("ray._private.services").canonicalize_bootstrap_address("auto")
    return None


def _dashboard(address: str) -> bool | None:
    return False if address == "local" else None


def require_answer(address: str) -> None:
    """Refuse an address at which no cluster answers; Ray itself would try for minutes, and end the process."""
    if address in LOCAL_NAMES:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise RiskpathError(f'a Ray address is "auto", "local" or "HOST:PORT", got {address!r}')
    try:
        with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection:
            understood = _encrypted() or _greet(connection)
    except OSError as error:
        raise RiskpathError(f"no Ray cluster answers at {address!r}: {error}") from None
    if not understood:
        raise RiskpathError(f"no Ray cluster answers at {address!r}: another program does; Ray's usual port is 6379")


def _greet(connection: socket.socket) -> bool:
    """Return whether the other side speaks HTTP/2, unlike Ray's own dashboard."""
    connection.sendall(HELLO)
    with connection.makefile("rb") as answer:
        return answer.read(len(SETTINGS))[3:4] == SETTINGS[3:4]


def _encrypted() -> bool:
    """Return whether Ray encrypts: then a cluster would not understand a plain greeting."""
    return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")
