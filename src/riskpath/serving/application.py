"""The web application: policies, their episodes, health, readiness, metrics and a page that describes it all.

    POST   /policies/{policy}/episodes              {"observation": …}                → {"episode": …, "action": …}
    POST   /policies/{policy}/episodes/{episode}    {"observation": …, "reward": …}   → {"action": …}
    DELETE /policies/{policy}/episodes/{episode}

A wrong request is answered with {"error": one line}.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from riskpath.errors import one_line
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.serving.limits import Limits
from riskpath.serving.openapi import document, page
from riskpath.serving.served_policy import Metrics, ServedPolicy
from riskpath.serving.sessions import Session, Unavailable

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """An operation whose errors are answers of one line, and which is counted."""

    def __init__(self, route: str, handler: Handler, metrics: Metrics):
        self.route, self.handler, self.metrics = route, handler, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await self._answer(Request(scope, receive))
        self.metrics.count(self.route, response.status_code)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self.handler(request)
        except Unavailable as error:
            return _error(error.status, str(error))
        except ValueError as error:  # a RiskpathError is one
            return _error(400, str(error))
        except RecursionError:
            return _error(400, "the body is too deep")
        except ClientDisconnect:
            return _error(400, "the client has gone")
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
        routes = [  # the busiest come first
            ("/policies/{policy}/episodes/{episode}", "POST", self.act),
            ("/policies/{policy}/episodes/{episode}", "DELETE", self.end),
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
        self.asgi = Router(every, lifespan=self._lifespan, default=missing, redirect_slashes=False)
        """The application for an ASGI server."""

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

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page(self._document()))

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(self._document())

    def _document(self) -> dict[str, Any]:
        return document({name: one.policy.description for name, one in self.policies.items()}, self.longest)

    async def health(self, request: Request) -> Response:
        """Answer as long as the process runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Answer with 200 when every policy is compiled, before with 503."""
        return JSONResponse({"ready": self.is_ready}, 200 if self.is_ready else 503)

    async def counters(self, request: Request) -> Response:
        """Return what was counted, in the text format of Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list(self, request: Request) -> Response:
        return JSONResponse({"policies": list(self.policies)})

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self._policy(request).policy.description)

    async def begin(self, request: Request) -> Response:
        """Begin an episode; return its name and the first action."""
        began, policy = time.perf_counter(), self._policy(request)
        session = await policy.begin(policy.read(await self._body(request), first=True))
        policy.seconds.observe(time.perf_counter() - began)
        return JSONResponse({"episode": session.key, **_action(session)}, 201)

    async def act(self, request: Request) -> Response:
        began, policy = time.perf_counter(), self._policy(request)
        asked = policy.read(await self._body(request), first=False)
        session = await policy.act(request.path_params["episode"], asked)
        policy.seconds.observe(time.perf_counter() - began)
        return JSONResponse(_action(session))

    async def end(self, request: Request) -> Response:
        sessions = self._policy(request).sessions
        sessions.end(sessions.take(request.path_params["episode"]))
        return Response(status_code=204)

    async def missing(self, request: Request) -> Response:
        return _error(404, f"nothing is at {request.url.path[:60]}: / describes this server")

    def _policy(self, request: Request) -> ServedPolicy:
        name = request.path_params["policy"]
        if name not in self.policies:
            raise Unavailable(404, f"there is no such policy; there are {', '.join(self.policies)}")
        return self.policies[name]

    async def _body(self, request: Request) -> Any:
        """Return the object in the body of a request; refuse a long body before it is read."""
        too_long = Unavailable(413, f"a body must be at most {self.longest:,} bytes")
        if int(request.headers.get("content-length", 0)) > self.longest:
            raise too_long
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self.longest:
                raise too_long
        try:
            return json.loads(body)
        except ValueError:
            raise ValueError("the body must be JSON") from None


def _action(session: Session) -> dict[str, Any]:
    return {"action": session.action, "step": session.steps - 1}


def _error(status: int, line: str) -> Response:
    return JSONResponse({"error": line}, status, {"retry-after": "1"} if status == 503 else None)
