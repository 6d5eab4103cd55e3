"""The connection to a Ray cluster, for sweeps and for environments on its nodes."""

import contextlib
import signal
import socket
import subprocess
import sys
from typing import Any

from riskpath.errors import RiskpathError, one_line
from riskpath.extras import require_extra

ANSWER_SECONDS = 30.0
"""How long a cluster may take to answer."""
CONNECT = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
"""What the process does that tries an address."""


def connect(address: str, what: str) -> tuple[Any, bool]:
    """Return the module of Ray, connected to a cluster, and whether it was connected here.

    Args:
        address: "auto" for the cluster of this machine, "local" for a new one, "HOST:PORT" or "ray://HOST:PORT".
        what: The feature that needs it: "a sweep on Ray".
    """
    ray = require_extra("ray", "ray", what)
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


def living_nodes(ray: Any) -> dict[str, str]:
    """Return the address of every node of the cluster that is alive, by the node's id."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def require_address(address: Any) -> None:
    """Refuse what cannot be the address of a cluster."""
    host, colon, port = address.removeprefix("ray://").rpartition(":") if isinstance(address, str) else ("", "", "")
    if address not in ("auto", "local") and not (colon and port.isdigit() and host):
        raise RiskpathError(f'a Ray address is "auto", "local" or "HOST:PORT", got {address!r}')


def require_answer(address: str) -> None:
    """Refuse an address at which no cluster answers. Ray itself would try for minutes and end the process, so another
    process tries, for a limited time.
    """
    if address == "local":
        return
    require_address(address)
    host, _, port = address.removeprefix("ray://").rpartition(":")
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
