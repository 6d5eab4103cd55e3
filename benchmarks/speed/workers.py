"""Processes that train in turn, spell by spell, so that a change in the load of the machine meets all of them."""

import contextlib
import json
import os
import subprocess
import threading
from typing import Any

COMPILING_S = 1_200
"""Seconds that a process may take to compile, or to answer beyond the length of a spell."""


class Failed(Exception):
    """A process ended or did not answer in time."""


class Worker:
    """A process that trains a spell at a time (`peers.take_turns`)."""

    def __init__(self, command: list[str]):
        one_thread = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread},
        )
        self.errors: list[str] = []
        self.collector = threading.Thread(target=self._collect_errors, daemon=True)
        self.collector.start()

    def _collect_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-19:], line.rstrip()]

    def answer(self, timeout: float) -> dict[str, Any]:
        """Return the next answer; other lines that a library prints are skipped."""
        timer = threading.Timer(timeout, self.process.kill)
        timer.start()
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                if line.startswith("ANSWER "):
                    return json.loads(line.removeprefix("ANSWER "))
        finally:
            timer.cancel()
        self.process.wait()
        self.collector.join()
        raise Failed(self.errors[-1] if self.errors else f"exit status {self.process.returncode}")

    def spell(self, seconds: float) -> dict[str, float]:
        """Train for some seconds and return the rates."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.errors[-1] if self.errors else "the process has ended") from None
        return self.answer(seconds + COMPILING_S)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.collector.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()


def in_turns(
    commands: list[list[str]], seconds: float, repeats: int
) -> tuple[list[dict[str, Any]], list[list[dict[str, float]]]]:
    """Return what each process says about itself, and the rates of all of them in every round of spells."""
    workers: list[Worker] = []
    try:
        about = []
        for command in commands:
            workers.append(Worker(command))
            about.append(workers[-1].answer(COMPILING_S))  # one after the other: all use the same core
        for worker in workers:
            worker.spell(min(1.0, seconds))  # the first spell is not counted
        return about, [[worker.spell(seconds) for worker in workers] for _ in range(repeats)]
    finally:
        for worker in workers:
            worker.close()
