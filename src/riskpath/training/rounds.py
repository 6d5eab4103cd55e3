"""How training is divided into chunks, rounds and iterations.

An iteration is some steps of every environment and then some updates. A round has as many iterations as lie between two
target updates, or one if these happen within it. A chunk is a number of rounds, after which the host sees the state.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from riskpath.agents.abilities import TargetNetworks
from riskpath.agents.agent import Agent
from riskpath.agents.experience import Experience


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


def in_chunks(lanes: Any, steps: int, chunk: int, explore: Any, train: Any) -> Generator[tuple[Any, dict[str, Any]]]:
    """Explore until learning starts, then train, and yield lanes and metrics after every chunk.

    Each lane takes about `steps` further steps, in chunks of about `chunk` steps, at least one round. `explore` gets
    the lanes and a number of steps of every environment, `train` the lanes and a number of rounds.
    """
    goal, each = int(lanes.steps) + steps, lanes.round.steps
    if (warm := min(steps, lanes.experience.warm_up - int(lanes.steps))) > 0:
        lanes, metrics = explore(lanes, -(-warm // lanes.num_envs))
        yield lanes, metrics
    while (left := goal - int(lanes.steps)) > 0:
        lanes, metrics = train(lanes, min(max(1, chunk // each), -(-left // each)))
        yield lanes, metrics
