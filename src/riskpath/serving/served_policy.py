"""A policy that answers the requests of many clients in batches, and what is counted, in the format of Prometheus.

Requests that arrive while a batch is computed form the next one, so that no request waits for a batch to fill.
"""

import asyncio
import gc
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, did_you_mean, short_repr
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.policy_inputs import as_mask, as_reward, missing_reward
from riskpath.extras import require_extra
from riskpath.hyperparameters import plain
from riskpath.serving.limits import Limits
from riskpath.serving.sessions import Session, Sessions, Unavailable

COMPILING = threading.Lock()
"""Held while a policy is compiled: several are compiled one after another."""
FIELDS = ("observation", "reward", "mask", "step")
"""The fields that a request may contain."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The limits of the classes in which the times of answers are counted."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Those of the sizes of batches."""


class Metrics:
    """The counters of a server, in a registry of its own."""

    def __init__(self):
        client = require_extra("prometheus_client", "serve", "riskpath serve")
        self.registry = client.CollectorRegistry()
        self._generate = client.generate_latest
        own = {"registry": self.registry}
        self.requests = client.Counter("riskpath_requests", "Requests by route and status.", ["route", "status"], **own)
        self.seconds = client.Histogram(
            "riskpath_action_seconds", "Time from a request to its action.", ["policy"], buckets=SECONDS, **own
        )
        self.sizes = client.Histogram(
            "riskpath_batch_size", "Requests answered by one call of a policy.", ["policy"], buckets=SIZES, **own
        )
        self.episodes = client.Gauge("riskpath_episodes", "Episodes now.", ["policy"], **own)
        self.expired = client.Gauge("riskpath_expired_episodes", "Episodes that have expired.", ["policy"], **own)
        self._statuses: dict[tuple[str, int], object] = {}

    def count(self, route: str, status: int) -> None:
        """Count a request."""
        counter = self._statuses.get((route, status))
        if counter is None:
            counter = self._statuses[route, status] = self.requests.labels(route, str(status))
        counter.inc()  # pyright: ignore[reportAttributeAccessIssue]

    def text(self) -> bytes:
        """Return all counters as text."""
        return self._generate(self.registry)


@dataclass(slots=True)
class Asked:
    """What one client has observed."""

    observation: np.ndarray
    reward: float
    mask: np.ndarray | None
    step: int | None


class ServedPolicy:
    """A policy, the episodes that it plays, and the requests that wait."""

    def __init__(self, name: str, policy: ExportedPolicy, limits: Limits, metrics: Metrics):
        """Prepare a policy, which has this name in addresses; `start` compiles it."""
        self.name, self.policy = name, policy
        self.sessions = Sessions([leaf[0] for leaf in policy.fresh], limits.episodes, limits.episode_seconds)
        self.seconds, self._batch = metrics.seconds.labels(name), metrics.sizes.labels(name)
        metrics.episodes.labels(name).set_function(lambda: len(self.sessions))
        metrics.expired.labels(name).set_function(lambda: self.sessions.expired)
        about = policy.description
        self.numbers = int(np.prod(about["observation"]["shape"], dtype=np.int64)) + int(about["num_actions"])
        """The numbers of an observation and a mask."""
        self.ready = False
        """Whether the policy is compiled."""
        self._sizes = limits.batch_sizes
        self._waiting: deque[tuple[Session, Asked, asyncio.Future[Any]]] = deque()
        self._wake, self._worker = asyncio.Event(), ThreadPoolExecutor(1, thread_name_prefix=f"policy {name}")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Compile the policy and answer requests from then on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._worker.shutdown(cancel_futures=True)

    def read(self, body: Any, first: bool) -> Asked:
        """Return what a client has sent as arrays, or refuse it in one line; `first` tells that an episode begins."""
        if not isinstance(body, dict):
            raise ValueError(f"a request must be an object with an observation, got {short_repr(body, 60)}")
        for field in body:
            if field not in FIELDS:
                raise ValueError(f"unknown field {short_repr(field, 60)}{did_you_mean(field, FIELDS)}")
        if "observation" not in body:
            raise ValueError("observation is missing")
        about, reward, mask, step = self.policy.description, body.get("reward"), body.get("mask"), body.get("step")
        if step is not None and (type(step) is not int or step < 0):
            raise ValueError(f"step must be a whole number, got {short_repr(step, 60)}")
        if reward is None:
            reward = missing_reward(first or not about["needs_rewards"], about["agent"])
        mask = None if mask is None else as_mask(mask, (1, about["num_actions"]))[0]
        return Asked(self.policy.read(body["observation"]), as_reward(reward), mask, step)

    async def begin(self, asked: Asked) -> Session:
        """Begin an episode and return its session, which has the first action."""
        self._require_ready()
        session = self.sessions.begin()
        try:
            await self._answer(session, asked)
        except BaseException:
            self.sessions.end(session)
            raise
        self.sessions.release(session)
        return session

    async def act(self, key: str, asked: Asked) -> Session:
        """Return the session of an episode after its next action; a repeated request changes nothing."""
        self._require_ready()
        session = self.sessions.take(key)
        try:
            if asked.step is None or asked.step == session.steps:
                await self._answer(session, asked)
            elif asked.step != session.steps - 1:
                raise Unavailable(409, f"the next step of this episode is {session.steps}, got {asked.step}")
        finally:
            self.sessions.release(session)
        return session

    def _require_ready(self) -> None:
        if not self.ready:
            raise Unavailable(503, f"policy {self.name} is being compiled")

    async def _answer(self, session: Session, asked: Asked) -> None:
        """Wait for the action of a session."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((session, asked, future))
        self._wake.set()
        action = await future
        session.action, session.steps = action, session.steps + 1

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for size in self._sizes:
            await loop.run_in_executor(self._worker, self._warm_up, size)
        gc.freeze()  # what is loaded and compiled now stays: collections take less time
        self.ready = True
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._sizes[-1]))]
                sessions, asked, futures = zip(*batch, strict=True)
                try:
                    actions = await loop.run_in_executor(self._worker, self._act, sessions, asked)
                except Exception as error:  # one answer for all of them, and the server goes on
                    for future in futures:
                        if not future.done():  # a request is cancelled when a stop takes too long
                            future.set_exception(error)
                    continue
                self._batch.observe(len(batch))
                for future, action in zip(futures, actions, strict=True):
                    if not future.done():
                        answer = future.set_exception if isinstance(action, Exception) else future.set_result
                        answer(action)

    def _act(self, sessions: tuple[Session, ...], asked: tuple[Asked, ...]) -> list[Any]:
        """Return the actions of a batch, and keep the memories; what pads a batch repeats its first request."""
        count = len(sessions)
        size = next(size for size in self._sizes if size >= count)
        asked = asked + asked[:1] * (size - count)
        rows = np.array([one.row for one in sessions] + [sessions[0].row] * (size - count))
        starts = np.array([one.steps == 0 for one in sessions] + [sessions[0].steps == 0] * (size - count))
        masks = None
        if any(one.mask is not None for one in asked):
            every = np.ones(self.policy.description["num_actions"], bool)
            masks = np.stack([every if one.mask is None else one.mask for one in asked])
        observations, rewards = np.stack([one.observation for one in asked]), np.array([one.reward for one in asked])
        memories = self.sessions.read(rows)
        actions, after = self.policy.act_rows(observations, memories, rewards, masks, starts)
        self.sessions.write(rows[:count], after)
        return [self._written(action) for action in actions[:count]]

    def _written(self, action: Any) -> Any:
        """Return an action as JSON, or the error that is the answer to this one request."""
        try:
            return plain(self.policy.write(action))
        except RiskpathError as error:
            return error

    def _warm_up(self, size: int) -> None:
        """Compile the program for batches of one size."""
        about = self.policy.description
        shape, dtype = about["observation"]["shape"], about["observation"]["dtype"]
        observations = np.full((size, *shape), about["first_state"], dtype)
        memories = self.sessions.read(np.zeros(size, np.int64))
        with COMPILING:
            self.policy.act_rows(observations, memories, np.zeros(size), None, np.ones(size, bool))
