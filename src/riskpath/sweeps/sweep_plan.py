"""What a sweep is: an agent, an environment, axes and how each lane is trained. It is cut into cells.

Combinations whose agents and environments differ only in numbers share a compiled program. Such a group becomes one
cell, or several if its lanes would not fit into memory. A lane has the same numbers in every cell, up to rounding.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.sweeps.axes import Combination, combinations
from riskpath.sweeps.lane_memory import lanes_that_fit
from riskpath.sweeps.store import Lane
from riskpath.sweeps.sweep_cells import SweepCell
from riskpath.training import inputs
from riskpath.training.codec import UnknownClass, decode, encode


@dataclass(frozen=True)
class SweepPlan:
    """Everything that decides about the results of a sweep."""

    agent: Agent
    env: Any
    over: dict[str, list[Any]]
    """The values of each axis."""
    steps: int
    seeds: int
    num_envs: int
    seed: int
    evaluate_every: int | None
    episodes: int | None

    @functools.cached_property
    def combinations(self) -> list[Combination]:
        """Return one agent and one environment for each combination of values."""
        return combinations(self.agent, self.env, self.over)

    @property
    def training(self) -> dict[str, Any]:
        """Return how each lane is trained and judged."""
        names = ("steps", "num_envs", "seed", "evaluate_every", "episodes")
        return {name: getattr(self, name) for name in names}

    def configuration(self) -> dict[str, Any]:
        """Return the sweep as JSON."""
        return {
            "agent": encode(self.agent),
            "env": _encode_env(self.env),
            "over": {axis: [_encode_env(value) for value in values] for axis, values in self.over.items()},
            **self.training,
            "seeds": self.seeds,
        }

    @staticmethod
    def from_configuration(stored: dict[str, Any]) -> "SweepPlan":
        """Return the sweep that `configuration` described, if its classes are defined in this process."""
        try:
            return SweepPlan(**{name: decode(value) for name, value in stored.items()})
        except UnknownClass as unknown:
            raise RiskpathError(
                f"this sweep needs a {unknown}, which the file cannot describe: call rp.sweep"
            ) from None
        except (TypeError, ValueError, LookupError) as error:
            raise RiskpathError(f"this sweep cannot be read: {error}") from None

    def groups(self) -> list[list[Combination]]:
        """Return the combinations that can be trained by one program, in groups."""
        found: dict[str, list[Combination]] = {}
        for combination in self.combinations:
            found.setdefault(inputs.program_key(combination.agent, combination.env), []).append(combination)
        for group in found.values():
            environment = inputs.as_environments(group[0].env, 1)[0][0]
            inputs.require_fit(group[0].agent, environment.spec, self.num_envs)
        return list(found.values())

    def cells(self, done: Iterable[Lane], max_lanes: int | None = None, at_least: int = 1) -> list[SweepCell]:
        """Return cells with all lanes that are not done.

        Args:
            done: Lanes that have been trained.
            max_lanes: The most lanes of a cell; by default as many as fit into memory.
            at_least: How many cells there should be, so that as many machines have work.
        """
        have, groups = set(done), self.groups()
        left = sum((c.number, seed) not in have for c in self.combinations for seed in range(self.seeds))
        most = min(max_lanes or left or 1, -(-max(left, 1) // at_least))
        cells = []
        for group in groups:
            fitting = (
                most if max_lanes else min(most, lanes_that_fit(group[0].agent, group[0].env, self.num_envs, most))
            )
            by_seeds: dict[tuple[int, int], list[Combination]] = {}
            for combination in group:
                missing = [seed for seed in range(self.seeds) if (combination.number, seed) not in have]
                for run in _runs(missing):
                    by_seeds.setdefault(run, []).append(combination)
            for (first, count), members in by_seeds.items():
                cells += self._cut(members, first, count, fitting)
        return cells

    def _cut(self, members: list[Combination], first: int, count: int, most: int) -> list[SweepCell]:
        """Return cells of at most so many lanes and of similar sizes."""
        if count > most:
            parts = [(first + start, size) for start, size in _parts(count, most)]
            return [SweepCell((one,), start, size, self.training) for one in members for start, size in parts]
        parts = _parts(len(members), most // count)
        return [SweepCell(tuple(members[start : start + size]), first, count, self.training) for start, size in parts]


def _parts(count: int, most: int) -> list[tuple[int, int]]:
    """Return the starts and sizes of equal parts, of at most `most`."""
    number = -(-count // most)
    ends = [count * part // number for part in range(number + 1)]
    return [(start, end - start) for start, end in zip(ends, ends[1:], strict=False)]


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first number and the length of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs


def _encode_env(env: Any) -> Any:
    return encode(inputs.as_environment(env) if isinstance(env, FiniteMDP) else env)
