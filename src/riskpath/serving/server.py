"""`riskpath serve` as a class: run it until a signal comes, or in the background of a program.

with rp.PolicyServer({"hedge": "policy.zip"}, port=0) as server:
    print(server.url)
"""

import gc
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.policy_file import compile_policy, load_policy
from riskpath.evaluation.table_policy import trace
from riskpath.extras import EXTRAS, require_extra
from riskpath.serving.limits import Limits
from riskpath.validation import require_counts

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
BACKLOG = 2048
"""Connections that wait to be accepted."""


class PolicyServer:
    """Serves exported policies over HTTP."""

    def __init__(
        self,
        policies: Mapping[str, Any] | Sequence[Any] | Any,
        host: str = "127.0.0.1",
        port: int = 8000,
        limits: Limits | None = None,
    ):
        """Load the policies; nothing listens yet.

        Args:
            policies: Files of exported policies, policies, or exact solutions of finite problems; a mapping names them,
                otherwise files name themselves.
            host: The address to listen at; "0.0.0.0" for all of this machine.
            port: The port; 0 for any that is free.
            limits: What clients are granted.
        """
        for package in EXTRAS["serve"]:
            if package != "uvloop":  # faster, and not there on Windows
                require_extra(package, "serve", "riskpath serve")
        from riskpath.serving.application import Application  # these import the packages of the extra
        from riskpath.serving.http_protocol import limited_protocol

        require_counts(0, port=port)
        if port > 65535:
            raise RiskpathError(f"port must be at most 65535, got {port}")
        self.limits, self.policies, self.host = limits or Limits(), _named(policies), host
        self.application = Application(self.policies, self.limits)
        uvicorn = require_extra("uvicorn", "serve", "riskpath serve")
        config = uvicorn.Config(
            self.application,
            host=host,
            port=port,
            http=limited_protocol(self.limits),
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            log_level="error",  # a malformed request is answered and counted, not logged
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=int(max(1, self.limits.idle_seconds)),
            timeout_graceful_shutdown=int(max(1, self.limits.stop_seconds)),
        )
        self._server, self._port = uvicorn.Server(config), port
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address; a free port is known once `listen` was called."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._port}"

    def listen(self) -> None:
        """Take the address; one that cannot be taken is refused in one line."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        taken = socket.socket(family)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((self.host, self._port))
            taken.listen(BACKLOG)  # clients may connect from now on, and wait
        except OSError as error:
            taken.close()
            raise RiskpathError(f"cannot listen at {self.host}:{self._port}: {error.strerror or error}") from None
        self._socket, self._port = taken, taken.getsockname()[1]

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM; requests that have arrived are answered first."""
        if self._socket is None:
            self.listen()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            gc.unfreeze()  # what was frozen when the policies were compiled
            assert self._socket is not None
            self._socket.close()

    def __enter__(self) -> "PolicyServer":
        """Serve in the background; return when every policy is compiled."""
        self.listen()
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        while not self.application.is_ready:
            if not self._thread.is_alive():
                raise RiskpathError(f"the server at {self.url} could not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop: answer the requests that have arrived, then close."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def _named(policies: Any) -> dict[str, ExportedPolicy]:
    """Return the policies by name."""
    if not isinstance(policies, Mapping):
        several = policies if isinstance(policies, list | tuple) else [policies]
        pairs = [(Path(one).stem if isinstance(one, str | Path) else "policy", one) for one in several]
    else:
        pairs = list(policies.items())
    found: dict[str, ExportedPolicy] = {}
    for name, given in pairs:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise RiskpathError(f"a policy's name has letters, digits, '.', '_' and '-', got {name!r}: give NAME=FILE")
        if name in found:
            raise RiskpathError(f"two policies have the name {name}: give NAME=FILE")
        found[name] = _policy(given)
    if not found:
        raise RiskpathError("give at least one policy")
    return found


def _policy(given: Any) -> ExportedPolicy:
    if isinstance(given, ExportedPolicy):
        return given
    if isinstance(given, str | Path):
        return load_policy(given)
    return compile_policy(trace(given))
