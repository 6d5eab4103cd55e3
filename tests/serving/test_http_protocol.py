"""When all connections are taken, a new client replaces one that keeps the server waiting."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import uvicorn

import riskpath as rp
from riskpath.serving import http_protocol

LIMITS = rp.Limits(connections=6)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.fixture
def connect() -> Iterator[Callable[[], HTTPConnection]]:
    """Return a function that connects to a server of few connections."""
    protocol = http_protocol.limited_protocol(LIMITS)
    server = uvicorn.Server(uvicorn.Config(application, http=protocol, lifespan="off", log_config=None))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=[[listening]])
    thread.start()
    with ExitStack() as closing:

        def one() -> HTTPConnection:
            connection = HTTPConnection(*listening.getsockname(), timeout=20)
            connection.connect()
            closing.callback(connection.close)
            return connection

        yield one
    server.should_exit = True
    thread.join()


def status(connection: HTTPConnection) -> int:
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def is_closed(connection: HTTPConnection) -> bool:
    return connection.sock.recv(1_000) == b""


def test_a_new_client_replaces_the_slowest_one_and_then_those_that_are_idle(connect, monkeypatch):
    monkeypatch.setattr(http_protocol, "PATIENCE", 60.0)
    monkeypatch.setattr(http_protocol, "LINGER", 0.05)
    idle = [connect() for _ in range(3)]
    assert [status(one) for one in idle] == [200, 200, 200]
    slow = []
    for _ in range(3):
        slow.append(connect())
        slow[-1].sock.sendall(b"GET / HTTP/1.1\r\nhost:")
        time.sleep(0.02)
    assert connect().sock.recv(1_000).startswith(b"HTTP/1.1 503 ")  # nobody has waited for long
    monkeypatch.setattr(http_protocol, "PATIENCE", 0.01)
    time.sleep(0.2)  # the refused one is gone
    new = []
    for victim in slow:  # the first of them has been slow for longest
        new.append(connect())
        assert status(new[-1]) == 200
        assert victim.sock.recv(1_000).startswith(b"HTTP/1.1 503 ")
        assert is_closed(victim)
    assert [status(one) for one in idle[1:]] == [200, 200]
    assert status(connect()) == 200  # the first one is idle for longest now
    assert is_closed(idle[0])
    assert [status(one) for one in (*idle[1:], *new)] == [200] * 5
