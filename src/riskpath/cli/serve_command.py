"""The command `serve`: exported policies over HTTP, until a signal comes."""

import contextlib
from typing import Annotated

import tyro
from rich.console import Console

from riskpath.errors import RiskpathError
from riskpath.serving.limits import Limits
from riskpath.serving.server import PolicyServer

DEFAULT = Limits()


def serve(
    policies: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME=]FILE")],
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Annotated[Limits, tyro.conf.arg(name="")] = DEFAULT,
) -> None:
    """Serve exported policies over HTTP; the address itself describes what it answers.

    Ctrl-C and SIGTERM stop the server after it has answered the requests that have arrived.

    Args:
        policies: Files that `riskpath export` wrote; NAME= gives another name than that of the file.
        host: The address to listen at; 0.0.0.0 for all of this machine.
        port: The port; 0 for any that is free.
        limits: What clients may hold, send and wait for.
    """
    server, console = PolicyServer(_named(policies), host, port, limits), Console()
    server.listen()
    names = ", ".join(server.policies)
    console.print(f"serving {names} at {server.url}; Ctrl-C stops", highlight=False, soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped before it raises the signal again
        server.run()
    console.print("stopped", highlight=False)


def _named(words: tuple[str, ...]) -> dict[str, str] | list[str]:
    """Return the files by name, if any has one."""
    if not any("=" in word for word in words):
        return list(words)
    named: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals:
            raise RiskpathError(f"give a name to every policy, or to none: NAME={word}")
        if name in named:
            raise RiskpathError(f"two policies have the name {name}")
        named[name] = path
    return named
