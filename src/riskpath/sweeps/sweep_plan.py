"""What a sweep is: an agent, an environment, axes and how each lane is trained. It is cut into cells.

Combinations whose agents and environments differ only in numbers share a compiled program. The lanes of such a group
are cut into blocks that fit into the memory of a device. A cell is a block for each local device.
"""

import functools
import itertools
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.sweeps.axes import Combination, combinations
from riskpath.sweeps.store import Lane
from riskpath.sweeps.sweep_cells import SweepCell
from riskpath.training import inputs
from riskpath.training.codec import UnknownClass, decode, encode
from riskpath.training.lane_memory import lanes_that_fit


@dataclass(frozen=True)
class SweepPlan:
    """Everything on which the results of a sweep depend."""

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
    max_lanes: int | None = None
    """The most lanes of each device at a time; None for all that fit."""

    @functools.cached_property
    def combinations(self) -> list[Combination]:
        """Return one agent and one environment for each combination of values."""
        return combinations(self.agent, self.env, self.over)

    @property
    def training(self) -> dict[str, Any]:
        """Return how each lane is trained and evaluated."""
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
            "max_lanes": self.max_lanes,
        }

    @staticmethod
    def from_configuration(stored: dict[str, Any]) -> "SweepPlan":
        """Return the sweep that `configuration` described, if its classes are defined in this process."""
        try:
            return SweepPlan(**{name: decode(value) for name, value in stored.items()})
        except UnknownClass as unknown:
            raise RiskpathError(
                f"this sweep needs a {unknown}, which is not defined here: import its module (on the command line "
                "--env MODULE:NAME), or call rp.sweep again"
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

    def width(self, devices: int, machines: int) -> int:
        """Return the number of lanes per device at a time: all that fit, but so that every device has work."""
        if self.max_lanes is not None:
            return self.max_lanes
        groups = self.groups()
        lanes = sum(map(len, groups)) * self.seeds
        most = max(1, -(-max(map(len, groups)) * self.seeds // devices), -(-lanes // (devices * machines)))
        most = min(most, -(-lanes // machines))
        return min(lanes_that_fit(group[0].agent, group[0].env, self.num_envs, most) for group in groups)

    def cells(self, width: int, devices: int = 1) -> list[SweepCell]:
        """Return all lanes in cells of one block for each device; a block has `width` lanes or fewer.

        Blocks do not depend on the number of devices: each device trains the lanes that one would train at a time.
        """
        cells: list[SweepCell] = []
        for group in self.groups():
            first = len(cells)
            for block in self._blocks(group, width):
                if len(cells) > first and (joined := cells[-1].join(block, devices)):
                    cells[-1] = joined
                else:
                    cells.append(block)
        return cells

    def _blocks(self, group: list[Combination], width: int) -> list[SweepCell]:
        """Return blocks of similar sizes: some combinations with all seeds, or some seeds of one combination."""
        if self.seeds > width:
            parts = _parts(self.seeds, width)
            return [SweepCell((one,), start, size, self.training) for one in group for start, size in parts]
        parts = _parts(len(group), width // self.seeds)
        return [SweepCell(tuple(group[start : start + size]), 0, self.seeds, self.training) for start, size in parts]


def unfinished(cell: SweepCell, done: Container[Lane]) -> list[SweepCell]:
    """Return the unfinished parts of a cell; a cell that was split before is split in the same way."""
    left = [lane not in done for lane in cell.lanes()]
    if all(left) or not any(left):
        return [cell] if left[0] else []
    return [part for half in cell.split() for part in unfinished(half, done)]


def _parts(count: int, most: int) -> list[tuple[int, int]]:
    """Return the starts and sizes of equal parts, of at most `most`."""
    number = -(-count // most)
    ends = [count * part // number for part in range(number + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(ends)]


def _encode_env(env: Any) -> Any:
    return encode(inputs.as_environment(env) if isinstance(env, FiniteMDP) else env)
