"""Gymnasium environments on the nodes of a Ray cluster.

A worker is a Ray actor with several of the environments, which it steps as a batch (`GymnasiumVector`). All workers are
asked at once; each answers with arrays, one message per step. An error of an environment's own code is an answer, too,
and ends the training as it does without Ray. No answer means that the worker is lost, with its node or alone: another
one takes its environments, which begin new episodes, and `step` raises `EpisodesLost` (`envs/vector.py`). What the
other workers have answered is kept until the step is asked for again.
"""

import contextlib
import importlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riskpath.envs.gymnasium_vector import GymnasiumSource, GymnasiumVector, seeds_of
from riskpath.envs.vector import EpisodesLost, Loss, VectorEnvironment, VectorStep
from riskpath.errors import RiskpathError, in_one_line, one_line
from riskpath.ray_cluster import connect, living_nodes

LOGGER = logging.getLogger("riskpath")
STEADY = 100
"""Steps after which a worker counts as steady: the cause of an earlier loss has gone."""
PAUSE = 0.5
"""Seconds before another worker takes the place of one that was lost while it began."""
MOST_LOSSES = 5
"""Losses in a row, without steady steps between, after which the environment itself is taken for the cause."""


class Holder:
    """Some of the environments, on a node: what a worker runs. Its answers are results, or the text of an error."""

    _vector: GymnasiumVector

    def begin(self, sources: Sequence[GymnasiumSource], limit: int | None, seeds: list[int]) -> Any:
        """Make the environments and reset them; return the node, first observations and action masks."""

        def make() -> Any:
            self._vector = GymnasiumVector(sources, 1, limit=limit)
            return importlib.import_module("ray").get_runtime_context().get_node_id(), *self._vector.begin(seeds)

        return _answer(make)

    def step(self, action: np.ndarray) -> Any:
        return _answer(lambda: self._vector.step(action, None, None))

    def close(self) -> None:
        self._vector.close()


def _answer(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return str(error) if isinstance(error, RiskpathError) else one_line(error)


@dataclass(eq=False)
class Worker:
    """A worker, as this process sees it."""

    columns: slice
    """Which of the environments it has."""
    actor: Any = None
    node: str = "unknown"
    """The address of its node."""
    answer: VectorStep | None = None
    """Its result of the present step, if others have to be asked again."""
    steps: int = 0
    """Steps since it began."""
    losses: int = 0
    """Losses in a row."""


class RayVector(VectorEnvironment):
    """Environments on a Ray cluster with SAME_STEP autoreset."""

    draws_from_keys = False

    def __init__(
        self,
        address: str,
        sources: Sequence[GymnasiumSource],
        limit: int | None,
        num_workers: int | None,
        num_cpus: float,
        patience: float,
    ):
        """Connect to the cluster, and divide environments, one of each source, among workers."""
        if any(source.vector is not None or source.single_use for source in sources):
            raise RiskpathError("a Ray cluster makes environments itself: give an id or a function that makes one")
        self._ray, _ = connect(address, "workers on Ray")
        self.spec, self.num_envs = sources[0].environment.spec, len(sources)
        self._sources, self._limit, self._patience = list(sources), limit, patience
        count = min(num_workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))), len(sources))
        edges = [len(sources) * i // count for i in range(count + 1)]
        self._workers = [Worker(slice(a, b)) for a, b in itertools.pairwise(edges)]
        # A worker that is lost is replaced here, because its environments have to begin anew.
        options = {"num_cpus": num_cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        with in_one_line("cannot make workers on Ray"):
            self._remote, self._num_cpus = self._ray.remote(**options)(Holder), num_cpus
        self._seeds = np.random.default_rng(0)

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reset all environments with seeds drawn from the keys; those of later losses follow from these seeds."""
        seeds = seeds_of(keys)
        self._seeds = np.random.default_rng(seeds)
        first = self._begin(self._workers, seeds)
        observation, mask = (np.concatenate(parts) for parts in zip(*first, strict=True))
        return observation, mask

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> VectorStep:
        """Step all environments that have not been stepped yet; raise `EpisodesLost` if some begin anew instead."""
        waiting = [worker for worker in self._workers if worker.answer is None]
        asked = [(worker, self._ask(worker, "step", action[worker.columns])) for worker in waiting]
        lost = []
        for worker, reference in asked:
            try:
                worker.answer = self._get(reference)
                worker.steps += 1
            except _Lost as error:
                lost.append((worker, str(error)))
        if lost:
            raise self._replace(lost)
        parts = [worker.answer for worker in self._workers if worker.answer is not None]
        for worker in self._workers:
            worker.answer = None
        return VectorStep(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def close(self) -> None:
        """Close the environments and end the workers; the connection to the cluster stays."""
        references = []
        for worker in self._workers:
            with contextlib.suppress(Exception):
                references.append(worker.actor.close.remote())
        with contextlib.suppress(Exception):
            self._ray.wait(references, num_returns=len(references), timeout=5.0)
        self._end(self._workers)

    def _replace(self, lost: list[tuple[Worker, str]]) -> EpisodesLost:
        """Let other workers begin with the environments of lost ones; return what is to be told."""
        for worker, why in lost:
            worker.losses, worker.steps = 1 if worker.steps >= STEADY else worker.losses + 1, 0
            if worker.losses >= MOST_LOSSES:
                raise RiskpathError(
                    f"a Ray worker was lost {worker.losses} times in a row, the environment may end its process: {why}"
                )
        workers, before = [worker for worker, _ in lost], sorted({worker.node for worker, _ in lost})
        self._end(workers)
        seeds = self._seeds.integers(2**31 - 1, size=self.num_envs).tolist()
        first, which = self._begin(workers, seeds), np.zeros(self.num_envs, bool)
        observation = np.zeros((self.num_envs, *first[0][0].shape[1:]), first[0][0].dtype)
        mask = np.zeros((self.num_envs, *first[0][1].shape[1:]), bool)
        for worker, (observed, available) in zip(workers, first, strict=True):
            which[worker.columns], observation[worker.columns], mask[worker.columns] = True, observed, available
        loss = Loss(self.steps, int(which.sum()), self.num_envs, ", ".join(before))
        LOGGER.warning("%s", loss)
        self.losses = (*self.losses, loss)
        return EpisodesLost(which, observation, mask)

    def _begin(self, workers: Sequence[Worker], seeds: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start workers wherever there is room; return the first observations and masks of each.

        `patience` is the time in which at least one more has to begin.
        """
        self._end(workers)
        first: dict[Worker, Any] = {}
        deadline, why = time.monotonic() + self._patience, ""
        waiting: dict[Any, Worker] = {}
        self.waits = True
        try:
            while len(first) < len(workers):
                for worker in (w for w in workers if w.actor is None):
                    with in_one_line("cannot send the environment to the Ray cluster"):
                        worker.actor = self._remote.remote()
                        given = self._sources[worker.columns], self._limit, seeds[worker.columns]
                        waiting[worker.actor.begin.remote(*given)] = worker
                ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=1.0)
                for worker, reference in ((waiting.pop(reference), reference) for reference in ready):
                    try:
                        node, *shown = self._get(reference)
                    except _Lost as error:  # while it began: another one, as long as there is time
                        why = f": {error}"
                        self._end([worker])
                        time.sleep(PAUSE)
                        continue
                    worker.node = living_nodes(self._ray).get(node, "unknown")
                    first[worker], deadline = shown, time.monotonic() + self._patience
                if len(first) < len(workers) and time.monotonic() > deadline:
                    raise RiskpathError(
                        f"{len(workers) - len(first)} of {len(self._workers)} Ray workers did not begin within "
                        f"{self._patience:g} seconds: each needs {self._num_cpus:g} CPU, and "
                        f"{len(living_nodes(self._ray))} nodes have "
                        f"{self._ray.available_resources().get('CPU', 0):g} CPUs free; use fewer num_workers{why}"
                    )
        except BaseException:
            self._end(workers)
            raise
        finally:
            self.waits = False
        return [first[worker] for worker in workers]

    def _end(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            with contextlib.suppress(Exception):
                self._ray.kill(worker.actor)
            worker.actor = worker.answer = None

    def _ask(self, worker: Worker, method: str, *given: Any) -> Any:
        """Return the reference to a worker's answer, or the error if it is known to be lost."""
        try:
            return getattr(worker.actor, method).remote(*given)
        except self._ray.exceptions.RayError as error:
            return error

    def _get(self, reference: Any) -> Any:
        """Wait for an answer; raise an error of the environment, or that the worker is lost."""
        exceptions = self._ray.exceptions
        try:
            if isinstance(reference, exceptions.RayError):
                raise reference
            answer = self._ray.get(reference)
        except exceptions.RayTaskError as error:  # what was sent could not be read there
            raise RiskpathError(f"a Ray worker failed, does its node have the same packages? {_cause(error)}") from None
        except exceptions.RayError as error:
            raise _Lost(_cause(error)) from None
        if isinstance(answer, str):
            raise RiskpathError(answer)
        return answer


class _Lost(Exception):
    """A worker does not answer."""


def _cause(error: Any) -> str:
    """Return the last line of what Ray says: it has the cause."""
    return str(error).strip().rpartition("\n")[2]
