"""The result of a solver: the value, the return distribution, the policy, and whether it is proven optimal."""

from dataclasses import dataclass, field
from typing import Any

from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.policy_evaluation import describe_policy
from riskpath.plot.notebook import html_lines
from riskpath.risk.measures import RiskMeasure

LINES = 12
"""Number of decisions that `Solution.describe` lists."""


@dataclass(frozen=True, eq=False)
class Component:
    """One of the deterministic policies that a randomised policy draws from."""

    prob: float
    law: Law
    policy: Policy = field(repr=False)


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of `riskpath.solve`."""

    mdp: FiniteMDP = field(repr=False)
    """The problem."""
    risk: RiskMeasure
    """β."""
    policies: str
    """The class of policies."""
    value: float
    """β of the whole return of `policy`, from start to end."""
    law: Law
    """The distribution of that return."""
    policy: Policy = field(repr=False)
    """The policy."""
    optimal: bool
    """Whether it is proven that no deterministic policy of this class has a larger value."""
    report: str
    """The outcome of the solver, in one line."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Numbers of one solver, such as `iterations`, `cycle` and `nested_value`."""
    bounds: tuple[float, float] | None = None
    """A lower and an upper bound of the best value, if the value is not exact."""
    components: tuple[Component, ...] = ()
    """The policies that a randomised policy draws from, the most probable first; empty for other solutions."""

    def describe(self) -> str:
        """Return the value, the decisions and the return distribution as a few lines of text."""
        lines = [f"{self.risk} of the whole return, {self.policies} policies: {self.value:.6g} ({self.report})"]
        if len(self.components) > 1:
            lines += [f"  with probability {part.prob:.4g}: {part.law}" for part in self.components]
        else:
            lines += [f"  {line}" for line in self.decisions()]
        return "\n".join([*lines, f"  return: {self.law}"])

    def decisions(self, lines: int = LINES) -> list[str]:
        """Return the decisions of the policy in words, at most `lines` lines."""
        return describe_policy(self.mdp, self.policy, lines)

    def plot(self, ax: Any = None, *, kind: str = "cdf", label: str | None = None, **style: Any) -> Any:
        """Draw the return distribution into matplotlib axes and return the axes, as `Law.plot` does."""
        return self.law.plot(ax, kind=kind, label=label, **style)

    def _repr_html_(self) -> str:
        title, *lines = self.describe().splitlines()
        return html_lines(title, lines)

    def to_json(self) -> dict[str, Any]:
        """Return the solution as data for JSON."""
        parts = [{"prob": part.prob, **_law_json(part.law)} for part in self.components]
        return {
            "risk": str(self.risk),
            "policies": self.policies,
            "value": self.value,
            "optimal": self.optimal,
            "report": self.report,
            "policy": describe_policy(self.mdp, self.policy) if len(self.components) < 2 else [],
            "law": _law_json(self.law),
            **({} if self.bounds is None else {"bounds": list(self.bounds)}),
            **({"components": parts} if parts else {}),
            **{key: value for key, value in self.details.items() if isinstance(value, (int, float, str))},
        }


def solution_of(
    mdp: FiniteMDP,
    risk: RiskMeasure,
    law: Law,
    policy: Policy,
    optimal: bool,
    report: str,
    details: dict[str, Any] | None = None,
    bounds: tuple[float, float] | None = None,
    components: tuple[Component, ...] = (),
    policies: str = "adaptive",
) -> Solution:
    """Return a solution whose value is the risk of its distribution."""
    value = float(risk.value(law))
    return Solution(mdp, risk, policies, value, law, policy, optimal, report, details or {}, bounds, components)


def _law_json(law: Law) -> dict[str, list[float]]:
    return {"atoms": law.atoms.tolist(), "probs": law.probs.tolist()}
