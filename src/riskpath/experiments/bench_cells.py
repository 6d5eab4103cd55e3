"""One cell of the benchmark: an agent on a problem, for all measures of one kind. It is trained, evaluated and stored.

The measures of a kind (all levels of CVaR) and the seeds are lanes of one call of `train`. A finished cell is one file,
written completely or not at all, so an interrupted benchmark loses one cell at most.
"""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.experiments.bench_scores import CONFIDENCE, RESAMPLES
from riskpath.experiments.bench_suite import BenchProblem, Entrant, hyperparameters
from riskpath.experiments.records import write_json
from riskpath.risk.compose import BY_NAME, parse_risk
from riskpath.risk.measures import Mean
from riskpath.sweeps.jobs import Report
from riskpath.sweeps.store import difference
from riskpath.training.codec import encode
from riskpath.training.measured import SITUATIONS
from riskpath.training.run import Run
from riskpath.training.train import train
from riskpath.version import versions

SEED, EVALUATION_SEED = 1, 2
"""Seeds of training and of evaluation."""


@dataclass(frozen=True)
class Cell:
    """An agent on a problem for the measures of one kind."""

    entrant: Entrant
    problem: BenchProblem
    kind: str
    """The kind of the measures, for example "cvar"."""
    risks: tuple[str, ...]
    """The measures by which the policies are evaluated; a control is trained for the mean, others for each of them."""
    settings: dict[str, Any]
    """The entry of `bench_suite.SIZES`."""
    seeds: int

    @property
    def name(self) -> str:
        """Return the agent, the problem and the kind of measure."""
        return f"{self.entrant.name} on {self.problem.name}, {self.kind}"

    @property
    def file(self) -> str:
        """Return the name of the file."""
        words = (self.entrant.name, self.problem.name, self.kind)
        return "-".join(re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") for word in words) + ".json"

    def agents(self) -> list[Agent]:
        """Return the agent of each setting."""
        trained = [Mean()] if self.entrant.control else [parse_risk(risk) for risk in self.risks]
        return [self.entrant.make(risk, hyperparameters(self.settings)) for risk in trained]

    def configuration(self) -> dict[str, Any]:
        """Return everything on which the result depends."""
        return {
            "agent": [encode(agent) for agent in self.agents()],
            "environment": self.problem.identity,
            "risks": list(self.risks),
            **{key: self.settings[key] for key in ("steps", "num_envs", "episodes")},
            "seeds": self.seeds,
            "seed": SEED,
        }

    @property
    def size(self) -> float:
        return self.settings["steps"]

    def split(self) -> Sequence["Cell"]:
        """Return nothing: a file of the benchmark holds all measures of a kind."""
        return ()

    def run(self, report: Report | None = None) -> dict[str, Any] | None:
        """Train and evaluate; return the content of the file, or None if training was interrupted."""
        references = {risk: self.problem.reference(risk) for risk in self.risks}
        settings, began = self.settings, time.perf_counter()
        run = train(
            self.agents(),
            self.problem.env,
            steps=settings["steps"],
            seeds=self.seeds,
            num_envs=settings["num_envs"],
            seed=SEED,
            progress=(lambda run, _: report(min(1.0, run.steps / settings["steps"]))) if report else False,
        )
        if not run.finished:
            return None
        trained = time.perf_counter()
        results = self._judge(run)
        return {
            "agent": self.entrant.name,
            "problem": self.problem.name,
            "kind": self.kind,
            "configuration": self.configuration(),
            "seeds": self.seeds,
            "steps": run.steps,
            "seconds": round(trained - began, 1),
            "seconds_of_evaluation": round(time.perf_counter() - trained, 1),
            "device": jax.local_devices()[0].device_kind,
            "versions": versions(),
            "results": [{**result, **references[result["risk"]]._asdict()} for result in results],
        }

    def _judge(self, run: Run) -> list[dict[str, Any]]:
        """Return the value of every seed's greedy policy, with an interval of their mean, for every measure."""
        settings = [0] * len(self.risks) if self.entrant.control else range(len(self.risks))
        situations = None if self.problem.size == "small" else SITUATIONS
        found, results = run.measure(self.settings["episodes"], EVALUATION_SEED, situations), []
        for setting, risk in zip(settings, self.risks, strict=True):
            measure = parse_risk(risk)
            values, interval = found.values(measure), found.interval(measure, setting, RESAMPLES, CONFIDENCE)
            ends = {"low": interval.low, "high": interval.high, "episodes": found.episodes}
            results.append({"risk": risk, "values": values[setting].tolist(), **ends})
        return results

    def store(self, folder: Path, content: dict[str, Any]) -> None:
        """Write the file of this cell."""
        write_json(folder / self.file, content)

    def stored(self, folder: Path) -> dict[str, Any] | None:
        """Return the content of the file of this cell; refuse a damaged one and one of another configuration."""
        path = folder / self.file
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text())
            before = content["configuration"]
            _ = content["results"][0]["values"]
        except (OSError, ValueError, LookupError, TypeError):
            raise RiskpathError(f"{path} is damaged: remove it to train {self.name} again") from None
        if different := difference(before, json.loads(json.dumps(self.configuration()))):
            raise RiskpathError(f"{path} has another configuration ({different}): give another folder, or remove it")
        return content


def kind_of(risk: str) -> str:
    """Return the kind of a measure: its name without its level; a mixture is a kind of its own."""
    name = risk.partition(":")[0]
    return name if name in BY_NAME else risk


def plan(
    entrants: list[Entrant], problems: list[BenchProblem], risks: list[str], seeds: int, settings: Any
) -> list[Cell]:
    """Return all cells; a measure that an agent does not optimise is left out."""
    cells = []
    for problem in problems:
        size = settings(problem)
        if problem.optima is not None:  # a missing value is reported before the work
            _ = [problem.reference(risk) for risk in risks]
        for entrant in entrants:
            if entrant.control:
                cells.append(Cell(entrant, problem, "mean", tuple(risks), size, seeds))
                continue
            kinds: dict[str, list[str]] = {}
            for risk in risks:
                if _optimises(entrant, risk, size):
                    kinds.setdefault(kind_of(risk), []).append(risk)
            cells += [Cell(entrant, problem, kind, tuple(own), size, seeds) for kind, own in kinds.items()]
    if not cells:
        raise RiskpathError(f"none of these agents optimises {', '.join(risks)}")
    return cells


def _optimises(entrant: Entrant, risk: str, settings: dict[str, Any]) -> bool:
    measure = parse_risk(risk)
    try:
        entrant.make(measure, hyperparameters(settings))
    except RiskpathError:
        return False
    return True
