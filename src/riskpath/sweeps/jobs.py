"""Run jobs one after another or on Ray: a failing job is retried, then split, then reported; the others continue.

A job is anything with a name, a size, `run` and `split`: a cell of a sweep or of a benchmark.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax

from riskpath.errors import RiskpathError, one_line
from riskpath.training.progress import duration, make_bar

Report = Callable[[float], None]
"""A function of the progress of a job, from 0 to 1."""
Progress = bool | Callable[[str], Any]


@runtime_checkable
class Job(Protocol):
    """A piece of work that can be done anywhere."""

    @property
    def name(self) -> str:
        """The name of the job, different for every job."""
        ...

    @property
    def size(self) -> float:
        """The amount of work, relative to other jobs."""
        ...

    def run(self, report: Report | None = None) -> dict[str, Any] | None:
        """Do it and return the result; None if the user interrupted it."""
        ...

    def split(self) -> Sequence["Job"]:
        """Return smaller jobs with the same results together; nothing if it cannot be split."""
        ...


@dataclass(frozen=True)
class Failure:
    """Why a job has no result."""

    line: str
    out_of_memory: bool = False


def attempt(job: Job, report: Report | None = None) -> dict[str, Any] | Failure | None:
    """Do a job; an error becomes one line, which can travel between machines."""
    try:
        return job.run(report)
    except Exception as error:
        line = str(error) if isinstance(error, RiskpathError) else one_line(error)
        return Failure(line, "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError))


class Local:
    """Does jobs in this process, one after another."""

    slots = 1
    """The number of jobs done at the same time."""

    def __init__(self):
        self.devices = len(jax.local_devices())
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def wait(self, meter: "Meter") -> tuple[Job, dict[str, Any] | Failure | None]:
        """Return a job that has ended, with its result."""
        job = self._jobs.popleft()
        return job, attempt(job, lambda share: meter.inside(job, share))

    def close(self) -> None:
        self._jobs.clear()


def run_jobs(
    jobs: Sequence[Job],
    finish: Callable[[Any, dict[str, Any]], str],
    worker: Any,
    *,
    retries: int = 1,
    progress: Progress = False,
    done: int = 0,
) -> dict[str, str]:
    """Do all jobs, unless the user interrupts the work; return those that failed, with the reasons.

    Args:
        jobs: The jobs.
        finish: Called with each finished job and its result, at once; returns a word about it for the progress.
        worker: `Local` or `OnRay`.
        retries: Number of further attempts for a failing job before it is split or reported.
        progress: True for a progress bar, or a function of a line that is called after every job.
        done: Jobs that were finished before, for the progress.
    """
    meter, failed, tries = Meter(jobs, progress, done, worker.slots), dict[str, str](), dict[str, int]()
    waiting = 0
    try:
        for job in jobs:
            worker.submit(job)
            waiting += 1
        while waiting:
            job, result = worker.wait(meter)
            waiting -= 1
            if result is None:
                break
            if not isinstance(result, Failure):
                meter.after(job, finish(job, result))
                continue
            again = [job] if tries.get(job.name, 0) < retries and not result.out_of_memory else job.split()
            for part in again:
                tries[part.name] = tries.get(job.name, 0) + 1
                worker.submit(part)
                waiting += 1
            if not again:
                failed[job.name] = result.line
                meter.after(job, result.line, failed=True)
    except KeyboardInterrupt:
        pass
    finally:
        worker.close()
        meter.close()
    return failed


class Meter:
    """Shows the progress of all jobs and the remaining time: a bar on a terminal, or one line after each job."""

    def __init__(self, jobs: Sequence[Job], progress: Progress, done: int, slots: int = 1):
        self._total, self._done, self._before = sum(job.size for job in jobs), 0.0, done
        self._count, self._ended = done + len(jobs), 0
        self._slots, self._since = slots, (time.monotonic(), 0.0)
        self._bar = make_bar("sweep", 1_000) if progress is True else None
        self._show = progress if callable(progress) else _to_stderr if progress and not self._bar else None
        if self._show and jobs:
            self._show(f"{done} of {self._count} cells done")

    def inside(self, job: Job, share: float) -> None:
        if self._bar:
            ended, done = f"{self._before + self._ended} of {self._count} cells", self._done + share * job.size
            self._bar.update(round(1_000 * done / self._total), f"{ended}, {job.name}"[:60], self._left(done))

    def after(self, job: Job, end: str, failed: bool = False) -> None:
        self._done, self._ended = self._done + job.size, self._ended + (not failed)
        self._count = max(self._count, self._before + self._ended)  # a job may have been split
        self.inside(job, 0.0)
        about, rest = "at most" if self._ended == self._slots == 1 else "about", self._left(self._done)
        if self._slots == self._ended == 1:
            self._since = time.monotonic(), self._done
        if self._show:
            ready = f"{self._before + self._ended} of {self._count} cells done, {about} {duration(rest or 0.0)} left"
            self._show(f"{ready}: {job.name}, {end}")

    def say(self, line: str) -> None:
        (self._show or _to_stderr)(line)

    def _left(self, done: float) -> float | None:
        """Return the seconds that are left, if anything is done.

        The first job has compiled what later ones use, so where jobs follow one another the others say how long one
        takes. Where they run side by side, those at work count as half done.
        """
        began, before = self._since if done > self._since[1] else (self._since[0], 0.0)
        left = max(0.0, self._total - done)
        half = 0.5 * min((self._slots - 1) * self._total / max(1, self._count - self._before), left)
        did = done - before + half
        return (time.monotonic() - began) * (left - half) / did if done > before else None

    def close(self) -> None:
        if self._bar:
            self._bar.close()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
