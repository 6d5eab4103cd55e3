"""A cell of a sweep: lanes that are trained together by one compiled program, evaluated, and stored as one file."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from riskpath.sweeps.axes import Combination
from riskpath.sweeps.jobs import Report
from riskpath.sweeps.store import Lane
from riskpath.training.measured import Measured
from riskpath.training.run import Run
from riskpath.training.train import train
from riskpath.version import versions

EPISODES, EPISODES_ON_HOST = 1_000, 100
"""Episodes of each lane where there is no exact value."""
EVALUATION_SEED = 1


@dataclass(frozen=True)
class SweepCell:
    """Some combinations with the same seeds, in equal blocks: one for each device."""

    combinations: tuple[Combination, ...]
    first_seed: int
    seeds: int
    training: dict[str, Any]
    """Steps, environments of each lane, seed, steps between evaluations, episodes of the last one."""
    blocks: int = 1

    @property
    def name(self) -> str:
        """Return the combinations and seeds in words."""
        what, last = self.combinations[0].name, self.first_seed + self.seeds - 1
        if len(self.combinations) > 1:
            what = f"{what} … {self.combinations[-1].name}"
        return f"{what}, seed {last}" if self.seeds == 1 else f"{what}, seeds {self.first_seed} to {last}"

    @property
    def file(self) -> str:
        """Return the name of its file: another one for other lanes."""
        lanes = [[one.number for one in self.combinations], self.first_seed, self.seeds]
        return hashlib.sha256(json.dumps(lanes).encode()).hexdigest()[:16]

    @property
    def size(self) -> float:
        return len(self.combinations) * self.seeds

    def lanes(self) -> list[Lane]:
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [(one.number, seed) for one in self.combinations for seed in seeds]

    def join(self, block: "SweepCell", most: int) -> "SweepCell | None":
        """Return this cell with another block; None if it has enough of them, or if they are not alike."""
        if self.blocks == most or block.size * self.blocks != self.size:
            return None
        blocks = self.blocks + 1
        if block.seeds == self.seeds and block.first_seed == self.first_seed:
            return replace(self, combinations=self.combinations + block.combinations, blocks=blocks)
        following = block.first_seed == self.first_seed + self.seeds
        if following and block.combinations == self.combinations:
            return replace(self, seeds=self.seeds + block.seeds, blocks=blocks)
        return None

    def split(self) -> Sequence["SweepCell"]:
        """Return two halves, of the blocks if there are several: of the combinations, or of the seeds of one."""
        blocks = (self.blocks // 2, self.blocks - self.blocks // 2) if self.blocks > 1 else (1, 1)
        several = len(self.combinations) > 1
        half = (len(self.combinations) if several else self.seeds) * blocks[0] // sum(blocks)
        if several:
            parts = zip((self.combinations[:half], self.combinations[half:]), blocks, strict=True)
            return [replace(self, combinations=part, blocks=number) for part, number in parts]
        if not half:
            return []
        last = replace(self, first_seed=self.first_seed + half, seeds=self.seeds - half, blocks=blocks[1])
        return [replace(self, seeds=half, blocks=blocks[0]), last]

    def run(self, report: Report | None = None) -> dict[str, Any] | None:
        """Train and evaluate all lanes; return the content of the file, or None if training was interrupted."""
        began, how = time.perf_counter(), self.training
        environments = [one.env for one in self.combinations]
        same = all(env is environments[0] for env in environments)
        run = train(
            [one.agent for one in self.combinations],
            environments[0] if same else environments,
            steps=how["steps"],
            seeds=self.seeds,
            first_seed=self.first_seed,
            num_envs=how["num_envs"],
            seed=how["seed"],
            devices=self.blocks,
            evaluate_every=how["evaluate_every"],
            progress=(lambda run, _: report(min(1.0, run.steps / how["steps"]))) if report else False,
        )
        if not run.finished:
            return None
        seconds = round(time.perf_counter() - began, 2)
        return {
            "lanes": self._records(run, seconds),
            "device": jax.local_devices()[0].device_kind,
            "versions": versions(),
        }

    def _records(self, run: Run, seconds: float) -> list[dict[str, Any]]:
        """Return what is known of every lane; "seconds" are those of the training of the whole cell."""
        episodes = self.training["episodes"] or (EPISODES_ON_HOST if run.sources else EPISODES)
        figures = evaluated(run.measure(episodes, EVALUATION_SEED, progress=False))
        estimates = run.estimates()
        return [
            {
                "combination": one.number,
                **one.settings,
                "seed": self.first_seed + seed,
                **figures[setting][seed],
                "estimate": float(estimates[setting, seed]),
                "steps": run.steps,
                "seconds": seconds,
                "curve": [[point["step"], point["values"][setting][seed]] for point in run.curve],
            }
            for setting, one in enumerate(self.combinations)
            for seed in range(self.seeds)
        ]


def evaluated(found: Measured) -> list[list[dict[str, Any]]]:
    """Return for each setting and seed its value with the ends of its 95 % interval, and the mean of its return."""
    values, means, sample = found.values().tolist(), found.means().tolist(), found.sample

    def lane(setting: int, seed: int) -> dict[str, Any]:
        value = values[setting][seed]
        interval = None if sample is None else sample[[setting], [seed]].risk()[0]
        low, high = (value, value) if interval is None else (interval.low, interval.high)
        return {"value": value, "low": low, "high": high, "mean": means[setting][seed], "episodes": found.episodes}

    return [[lane(setting, seed) for seed in range(len(row))] for setting, row in enumerate(values)]
