"""What a solver returns: the value, the law it is the value of, the policy that has it, and how sure we are."""

from dataclasses import dataclass, field
from typing import Any

from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.policy_evaluation import describe_policy
from riskpath.risk.law import Law
from riskpath.risk.measures import RiskMeasure


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer of `riskpath.solve`."""

    mdp: FiniteMDP = field(repr=False)
    """The problem solved."""
    risk: RiskMeasure
    """β."""
    policies: str
    """The class of policies searched."""
    value: float
    """β of the whole return of `policy`: what it is really worth from start to end."""
    law: Law
    """The law of that return."""
    policy: Policy = field(repr=False)
    """The policy found."""
    optimal: bool
    """Proven: no deterministic policy of this class has a larger value."""
    report: str
    """How the solver ended, in one line."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Numbers particular to one solver, such as `iterations`, `cycle`, `nested_value`, `upper_bound`."""

    def describe(self) -> str:
        """A few readable lines."""
        lines = [f"{self.risk} of the whole return, {self.policies} policies: {self.value:.6g} ({self.report})"]
        lines += [f"  {line}" for line in describe_policy(self.mdp, self.policy)]
        return "\n".join([*lines, f"  return: {self.law}"])

    def to_json(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {
            "risk": str(self.risk),
            "policies": self.policies,
            "value": self.value,
            "optimal": self.optimal,
            "report": self.report,
            "policy": describe_policy(self.mdp, self.policy),
            "law": {"atoms": self.law.atoms.tolist(), "probs": self.law.probs.tolist()},
            **{key: value for key, value in self.details.items() if isinstance(value, (int, float, str))},
        }
