"""The web application: policies, their episodes, health, readiness, metrics and a page that describes it all.

    POST   /policies/{policy}/episodes              {"observation": …}                → {"episode": …, "action": …}
    POST   /policies/{policy}/episodes/{episode}    {"observation": …, "reward": …}   → {"action": …}
    DELETE /policies/{policy}/episodes/{episode}

A wrong request is answered with {"error": one line}.
"""

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from riskpath.errors import one_line
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.serving.limits import Limits
from riskpath.serving.openapi import document, page
from riskpath.serving.served_policy import Metrics, ServedPolicy
from riskpath.serving.sessions import Session, Unavailable

JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
EPISODE = re.compile("/policies/(?P<policy>[^/]+)/episodes/(?P<episode>[^/]+)")


class Answer(NamedTuple):
    """What is sent to a client."""

    status: int
    body: bytes
    media_type: bytes = b"application/json"


Handler = Callable[[Scope, Receive], Awaitable[Answer]]


class Endpoint:
    """An operation whose errors are answers of one line, and which is counted."""

    def __init__(self, route: str, handler: Handler, metrics: Metrics):
        self.route, self.handler, self.metrics = route, handler, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        status, body, media_type = await self._answer(scope, receive)
        self.metrics.count(self.route, status)
        headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": [] if status == 204 else headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        try:
            return await self.handler(scope, receive)
        except Unavailable as error:
            return _error(error.status, str(error))
        except ValueError as error:  # a RiskpathError is one
            return _error(400, str(error))
        except RecursionError:
            return _error(400, "the body is too deep")
        except Exception as error:
            return _error(500, one_line(error))


class Application:
    """The answers of a server."""

    def __init__(self, policies: Mapping[str, ExportedPolicy], limits: Limits):
        """Prepare the policies; they are compiled when the server starts."""
        self.metrics = Metrics()
        self.policies = {name: ServedPolicy(name, one, limits, self.metrics) for name, one in policies.items()}
        largest = max(policy.numbers for policy in self.policies.values())
        self.longest = limits.body_bytes or 64 * 1024 + 32 * largest
        """The longest body of a request in bytes."""
        acting = "/policies/{policy}/episodes/{episode}"
        routes = [
            (acting, "DELETE", self.end),
            ("/policies/{policy}/episodes", "POST", self.begin),
            ("/policies/{policy}", "GET", self.describe),
            ("/policies", "GET", self.list),
            ("/health", "GET", self.health),
            ("/ready", "GET", self.ready),
            ("/metrics", "GET", self.counters),
            ("/openapi.json", "GET", self.openapi),
            ("/", "GET", self.page),
        ]
        every = [Route(path, Endpoint(path, answer, self.metrics), methods=[method]) for path, method, answer in routes]
        missing = Endpoint("", self.missing, self.metrics)
        self._router = Router(every, lifespan=self._lifespan, default=missing, redirect_slashes=False)
        self._acting = Endpoint(acting, self.act, self.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as an ASGI application; acting, the busiest operation, passes no router."""
        if scope["type"] == "http" and scope["method"] == "POST" and (found := EPISODE.fullmatch(scope["path"])):
            scope["path_params"] = found.groupdict()
            await self._acting(scope, receive, send)
        else:
            await self._router(scope, receive, send)

    @property
    def is_ready(self) -> bool:
        """Whether every policy is compiled."""
        return all(policy.ready for policy in self.policies.values())

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        for policy in self.policies.values():
            policy.start()
        yield
        for policy in self.policies.values():
            await policy.stop()

    async def page(self, scope: Scope, receive: Receive) -> Answer:
        return Answer(200, page(self._document()).encode(), b"text/html; charset=utf-8")

    async def openapi(self, scope: Scope, receive: Receive) -> Answer:
        return _json(self._document())

    def _document(self) -> dict[str, Any]:
        return document({name: one.policy.description for name, one in self.policies.items()}, self.longest)

    async def health(self, scope: Scope, receive: Receive) -> Answer:
        """Answer as long as the process runs."""
        return _json({"status": "ok"})

    async def ready(self, scope: Scope, receive: Receive) -> Answer:
        """Answer with 200 when every policy is compiled, before with 503."""
        return _json({"ready": self.is_ready}, 200 if self.is_ready else 503)

    async def counters(self, scope: Scope, receive: Receive) -> Answer:
        """Return what was counted, in the text format of Prometheus."""
        return Answer(200, self.metrics.text(), b"text/plain; version=0.0.4; charset=utf-8")

    async def list(self, scope: Scope, receive: Receive) -> Answer:
        return _json({"policies": list(self.policies)})

    async def describe(self, scope: Scope, receive: Receive) -> Answer:
        return _json(self._policy(scope).policy.description)

    async def begin(self, scope: Scope, receive: Receive) -> Answer:
        """Begin an episode; return its name and the first action."""
        began, policy = time.perf_counter(), self._policy(scope)
        session = await policy.begin(policy.read(await self._body(scope, receive), first=True))
        policy.seconds.observe(time.perf_counter() - began)
        return _json({"episode": session.key, **_action(session)}, 201)

    async def act(self, scope: Scope, receive: Receive) -> Answer:
        began, policy = time.perf_counter(), self._policy(scope)
        asked = policy.read(await self._body(scope, receive), first=False)
        session = await policy.act(scope["path_params"]["episode"], asked)
        policy.seconds.observe(time.perf_counter() - began)
        return _json(_action(session))

    async def end(self, scope: Scope, receive: Receive) -> Answer:
        sessions = self._policy(scope).sessions
        sessions.end(sessions.take(scope["path_params"]["episode"]))
        return Answer(204, b"")

    async def missing(self, scope: Scope, receive: Receive) -> Answer:
        return _error(404, f"nothing is at {scope['raw_path'][:60].decode()}: / describes this server")

    def _policy(self, scope: Scope) -> ServedPolicy:
        name = scope["path_params"]["policy"]
        if name not in self.policies:
            raise Unavailable(404, f"there is no such policy; there are {', '.join(self.policies)}")
        return self.policies[name]

    async def _body(self, scope: Scope, receive: Receive) -> Any:
        """Return the object in the body of a request; refuse a long body before it is read."""
        size, body, more = int(dict(scope["headers"]).get(b"content-length", 0)), b"", True
        while more and size <= self.longest:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ValueError("the client has gone")
            body, more = body + message.get("body", b""), message.get("more_body", False)
            size = max(size, len(body))  # chunks come without a Content-Length
        if size > self.longest:
            raise Unavailable(413, f"a body must be at most {self.longest:,} bytes")
        try:
            return json.loads(body)
        except ValueError:
            raise ValueError("the body must be JSON") from None


def _action(session: Session) -> dict[str, Any]:
    return {"action": session.action, "step": session.steps - 1}


def _json(content: Any, status: int = 200) -> Answer:
    return Answer(status, JSON.encode(content).encode())


def _error(status: int, line: str) -> Answer:
    return _json({"error": line}, status)
