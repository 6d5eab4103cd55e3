"""How training is divided into chunks, rounds and iterations.

An iteration is some steps of every environment and then some updates. A round has as many iterations as lie between two
target updates, or one if these happen within it. A chunk is a number of rounds, after which the run is evaluated and
shown. The host sees the state after every part of a chunk, so Ctrl-C waits for about a second and loses nothing.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from riskpath.agents.abilities import TargetNetworks
from riskpath.agents.agent import Agent
from riskpath.agents.experience import Experience

SECONDS = 1.0
"""About how long a part of a chunk takes."""


@dataclass(frozen=True)
class Round:
    """The sizes of a round and of its iterations."""

    num_envs: int
    """Environments of each lane."""
    moves: int
    """Steps of every environment in one iteration; 0 if there are only data."""
    updates: int
    """Updates in one iteration."""
    interval: int
    """Updates between two target updates; 0 for an agent without target networks."""

    @staticmethod
    def of(agent: Agent, experience: Experience, num_envs: int) -> "Round":
        """Return the round of an agent that learns from an experience."""
        interval = agent.target_update[0] if isinstance(agent, TargetNetworks) else 0
        return Round(num_envs, *experience.iteration(num_envs), interval)

    @property
    def moves_targets(self) -> bool:
        """Whether target networks move after every round; otherwise they move within iterations, if there are any."""
        return self.interval % self.updates == 0

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return max(1, self.interval // self.updates) if self.moves_targets else 1

    @property
    def steps_of_iteration(self) -> int:
        """The steps of each lane in one iteration: environment steps, or updates if there are only data."""
        return self.moves * self.num_envs or self.updates

    @property
    def steps(self) -> int:
        """The steps of each lane in the round."""
        return self.iterations * self.steps_of_iteration


class Part(NamedTuple):
    """Lanes after a part of a chunk."""

    lanes: Any
    metrics: dict[str, Any]
    """Means over the chunk so far."""
    whole: bool
    """Whether the chunk is complete."""


def in_chunks(
    lanes: Any, steps: int, chunk: int, explore: Any, train: Any, begin: int | None = None
) -> Generator[Part]:
    """Explore until learning starts, then train, and yield lanes and metrics about every second.

    Where chunks begin and end depends on numbers of steps only, so a continued run has the chunks of an uninterrupted
    one; where their parts end depends on the time they take.

    Each lane takes about `steps` further steps, about `chunk` of them in one chunk; training began at the step `begin`,
    by default here. `explore` takes lanes and a number of steps of every environment, `train` takes lanes and a number
    of rounds; both return lanes and metrics.
    """
    here, each, num_envs = int(lanes.steps), lanes.round.steps, lanes.num_envs
    goal, begin, warm_up = here + steps, here if begin is None else begin, lanes.experience.warm_up
    if (warm := min(steps, warm_up - here)) > 0:
        lanes, metrics = explore(lanes, -(-warm // num_envs))
        yield Part(lanes, metrics, True)
    first = begin + -(-max(0, warm_up - begin) // num_envs) * num_envs
    most, size = max(1, chunk // each), 1
    while (left := goal - int(lanes.steps)) > 0:
        rounds = min(most - (int(lanes.steps) - first) // each % most, -(-left // each))
        done, total = 0, {}
        while done < rounds:
            now, began = min(size, rounds - done), time.monotonic()
            lanes, metrics = train(lanes, now)
            int(lanes.steps)  # waits for the result
            size = max(1, min(8 * size, int(now * SECONDS / max(1e-6, time.monotonic() - began))))
            if now < rounds:
                total = {name: total.get(name, 0.0) + now * np.asarray(value) for name, value in metrics.items()}
                metrics = {name: value / np.float32(done + now) for name, value in total.items()}
            done += now
            yield Part(lanes, metrics, done == rounds)
