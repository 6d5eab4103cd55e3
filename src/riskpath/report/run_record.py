"""The content of a page as plain data: numbers, texts and lists of them. Nothing here evaluates or reads anything."""

from dataclasses import dataclass, field
from typing import Any

from riskpath.mdp.law import Law

ATOMS = 200
"""The most atoms of a distribution on a page."""
Triple = tuple[float, float, float]
"""An estimate and the ends of its 95 % interval."""


@dataclass(frozen=True)
class LawRecord:
    """A distribution of returns."""

    atoms: list[float]
    """Returns, ascending."""
    probs: list[float]

    @staticmethod
    def of(law: Law) -> "LawRecord":
        """Return the record of a distribution, with few atoms."""
        few, _ = law.coarsen(ATOMS)
        return LawRecord(few.atoms.tolist(), few.probs.tolist())


@dataclass(frozen=True)
class CurveRecord:
    """A learning curve."""

    steps: list[int]
    """Environment steps at each evaluation."""
    seeds: list[list[float]]
    """The value of each seed's greedy policy at these steps: [seeds, steps]."""
    low: list[float] = field(default_factory=list)
    """Lower end of the 95 % interval of the mean over seeds, at each step; empty with one seed."""
    high: list[float] = field(default_factory=list)
    """Its upper end."""


@dataclass(frozen=True)
class TrainingRecord:
    """Figures of the last hundred training episodes of each seed during training: [seeds, steps]."""

    steps: list[int]
    """Environment steps at each point; the last one is the latest."""
    returns: list[list[float]]
    """Mean of the undiscounted returns."""
    risks: list[list[float]]
    """The agent's own measure of its own, discounted returns."""
    lengths: list[list[float]]
    """Mean length."""


@dataclass(frozen=True)
class QuantilesRecord:
    """Quantile functions of the discounted return: predicted at the start of an episode, and measured."""

    levels: list[float]
    believed: list[list[float]]
    """The quantiles that each seed predicts: [seeds, levels]."""
    realised: list[list[float]]
    """Those of the returns of its greedy policy."""


@dataclass(frozen=True)
class OptimumRecord:
    """The best value of any policy."""

    value: float
    how: str
    """How it is known, for example "exact"."""
    law: LawRecord | None = None
    """The distribution of the return of a policy that attains it."""


@dataclass(frozen=True)
class GridPath:
    """Where the policy of some seeds walks on a grid."""

    seeds: list[int]
    """The seeds that walk alike."""
    moves: list[tuple[int, int, int, int, float]]
    """From row and column to row and column, and how often an episode makes this move, on average."""


@dataclass(frozen=True)
class GridRecord:
    """A grid, and the paths of every seed's policy."""

    cells: list[tuple[int, int, str]]
    """Row, column and kind (for example its colour) of every cell."""
    paths: list[GridPath]


@dataclass(frozen=True)
class SettingRecord:
    """One setting of a run: an agent with its hyperparameters, trained with several seeds."""

    label: str
    """Its name within the run."""
    risk: str
    discount: float
    value: Triple
    """The measure of the undiscounted return: its mean over seeds."""
    mean: Triple
    """The mean return, likewise."""
    values: list[float]
    """The measure of each seed's undiscounted return."""
    discounted: list[float]
    """The measure of each seed's discounted return."""
    estimates: list[float]
    """What each seed predicts this to be."""
    exact: bool
    """Whether these are exact; otherwise they come from sampled episodes."""
    episodes: int | None
    """The number of sampled episodes of each seed."""
    law: LawRecord
    """The return of all seeds together."""
    seed_laws: list[LawRecord]
    """The return of each seed's policy; empty with one seed."""
    curve: CurveRecord | None = None
    """The learning curve, if there is one."""
    training: TrainingRecord | None = None
    """The latest training episodes, once every seed has finished one."""
    quantiles: QuantilesRecord | None = None
    """The predictions of the agents beside the measured returns."""
    optimum: OptimumRecord | None = None
    """The optimum, where it is known."""
    grid: GridRecord | None = None
    """Paths, where the problem is a grid."""
    hyperparameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FrontierRecord:
    """Mean and CVaR of policies for several levels, all of one training."""

    levels: list[float]
    values: list[list[float]]
    """The CVaR of every level's policy: [levels, seeds]."""
    means: list[list[float]]
    """Its mean."""
    best_values: list[float] | None = None
    """The exact optima, where they are known."""
    best_means: list[float] | None = None
    """The means of the policies that attain them."""
    intervals: list[Triple] | None = None
    """The mean CVaR over seeds at every level, with its interval; None where all figures are exact."""


@dataclass(frozen=True)
class FloorsRecord:
    """Mean and risk of policies for several floors, all of one training."""

    risk: str
    """The measure that has the floors."""
    trained: float
    """The floor of the training."""
    floors: list[float]
    values: list[list[float]]
    """The measure of every floor's policy: [floors, seeds]."""
    means: list[list[float]]
    """Its mean."""
    best_values: list[float] | None = None
    """The measure of the best policies that reach the floors, where they are known."""
    best_means: list[float] | None = None
    """Their means."""


@dataclass(frozen=True)
class RunRecord:
    """A run."""

    title: str
    agent: str
    environment: str
    seeds: int
    steps: int
    """Environment steps of each seed so far."""
    planned: int | None
    """The steps at the end of training, if they are known."""
    finished: bool
    """Whether training went as far as planned."""
    settings: list[SettingRecord]
    frontier: FrontierRecord | None = None
    """The frontier, if the agent serves several levels."""
    floors: FloorsRecord | None = None
    """Its counterpart, if the agent was trained for a floor."""
    about: dict[str, str] = field(default_factory=dict)
    """Parameters of the environment, versions, device and time."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


@dataclass(frozen=True)
class BenchRecord:
    """The result of a benchmark."""

    title: str
    command: str
    rows: list[dict[str, Any]]
    """A row for each agent, problem and measure, as in `Bench.table`."""
    profiles: list[dict[str, Any]]
    """For each agent "label", "levels", "part", "low" and "high": which part of its runs has at least each share."""
    missing: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepRecord:
    """The result of a sweep."""

    title: str
    agent: str
    environment: str
    axes: list[str]
    """What was varied."""
    rows: list[dict[str, Any]]
    """A row for each combination: "settings", the values of the axes; "values" of its seeds, "means", and "curves"."""
    missing: int = 0
    failed: dict[str, str] = field(default_factory=dict)
