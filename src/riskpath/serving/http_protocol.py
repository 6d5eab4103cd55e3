"""The HTTP of uvicorn with limits that it does not have: on connections, on headers, and on the time of a request.

A client that sends its request slowly is answered with 408 when its time is over. A body is read to its end, or until
that time is over, after an early answer. When all connections are taken, a new client replaces the one that keeps the
server waiting for longest.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from riskpath.serving.limits import Limits

HEAD_BYTES = 32 * 1024
"""The longest request line with headers."""
LINGER = 1.0
"""Seconds in which a refused client may read why; a connection that is closed before takes the answer with it."""
PATIENCE = 1.0
"""Seconds for which the server waits for a client even if others want its connection."""


def limited_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """Return the protocol with these limits, for uvicorn's option `http`."""

    class LimitedProtocol(HttpToolsProtocol):
        """One connection."""

        timer: asyncio.TimerHandle | None = None
        head: int | None = 0  # bytes of the headers so far, None when they are complete
        refused = False

        def connection_made(self, transport: Any) -> None:
            """Accept a connection, or refuse it if there are too many."""
            super().connection_made(transport)
            if len(self.connections) > limits.connections and not self.make_room():
                self.refuse(503, f"there are {limits.connections:,} connections already: try again later")
                return
            self.watch()

        def make_room(self) -> bool:
            """Close a connection that waits for its client, rather one within a request than one between requests."""
            others = [(one.waits(), one) for one in self.connections if isinstance(one, LimitedProtocol)]
            waiting = [(waits, one) for waits, one in others if waits[1] >= PATIENCE]
            if not waiting:
                return False
            (within, _), slowest = max(waiting, key=lambda pair: pair[0])
            if within:
                slowest.refuse(503, "all connections are taken, and others are faster")
            slowest.transport.close()
            return True

        def waits(self) -> tuple[bool, float]:
            """Return whether a request is incomplete, and for how many seconds the server has waited for its client."""
            now, idle = self.loop.time(), self.timeout_keep_alive_task
            if self.timer is not None and not self.refused:
                return True, now - self.timer.when() + limits.request_seconds
            if idle is not None and not self.transport.is_closing():
                return False, now - idle.when() + self.timeout_keep_alive
            return False, 0.0

        def connection_lost(self, exc: Exception | None) -> None:
            self.unwatch()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.refused or self.transport.is_closing():
                return
            if self.head is not None:
                self.head += len(data)
            super().data_received(data)
            if self.refused or self.head == 0:  # nothing of another request
                return
            if self.head is not None and self.head > HEAD_BYTES:
                self.refuse(431, f"headers must be at most {HEAD_BYTES:,} bytes")
            elif self.timer is None:  # its first bytes
                self.watch()

        def on_message_begin(self) -> None:
            self.head = max(self.head or 0, 1)  # it may begin behind another request
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.head = None
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self.head = 0
            self.unwatch()  # the request has arrived

        def watch(self) -> None:
            """Start the clock of a request."""
            self.unwatch()
            self.timer = self.loop.call_later(limits.request_seconds, self.too_slow)

        def unwatch(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def too_slow(self) -> None:
            """Answer a request that has not arrived in time, unless it was answered before."""
            self.timer = None
            if self.head is None and self.cycle is not None and self.cycle.response_complete:
                self.transport.close()
            elif not self.transport.is_closing():
                self.refuse(408, f"a request must arrive within {limits.request_seconds:g} seconds")

        def refuse(self, status: int, line: str) -> None:
            """Answer outside of the application and close the connection."""
            body = json.dumps({"error": line}).encode()
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
            self.refused = True
            self.unwatch()
            self.timer = self.loop.call_later(LINGER, self.transport.close)

        def send_400_response(self, msg: str) -> None:
            self.refuse(400, msg)

    return LimitedProtocol
