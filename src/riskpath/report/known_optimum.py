"""The best value of any policy for a problem and a measure, if it is known or found within seconds."""

import time
from collections.abc import Callable
from typing import Any, TypeGuard

from riskpath.envs.finite import FiniteEnvironment
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.solve import solve
from riskpath.report.run_record import LawRecord, OptimumRecord
from riskpath.risk.measures import RiskMeasure

Lookup = Callable[[Any, RiskMeasure], float | None]
"""Returns an optimum that is known already, for an environment and a measure; None if it is not."""
SECONDS = 10.0
"""How long a solver may take for one problem and measure."""
SMALL_STATES = 100
"""A problem with more states is only solved for the mean and CVaR, where the solver can be stopped."""
_FOUND: dict[Any, tuple[OptimumRecord | None, str]] = {}
"""Optima found so far in this process: runs of one report often share their problem."""


class OutOfTime(Exception):
    """A solver has used up its time."""


def find_optimum(
    env: Any, risk: RiskMeasure, small: bool, lookup: Lookup | None = None
) -> tuple[OptimumRecord | None, str]:
    """Return the optimum of the undiscounted return, and a note if it is left out; only a small problem is solved.

    Where the problem has more than a few states, `lookup` is asked first.
    """
    few = has_few_states(env)
    if not few and lookup is not None:
        known = lookup(env, risk)
        if known is not None:
            return OptimumRecord(known, "of the suite"), ""
    if not isinstance(env, FiniteEnvironment) or not small:
        return None, ""
    mdp = env.mdp()
    key = (mdp.name, mdp.horizon, env.digest, str(risk))
    if key not in _FOUND:
        _FOUND[key] = _solve(mdp, risk, few)
    return _FOUND[key]


def has_few_states(env: Any) -> TypeGuard[FiniteEnvironment]:
    """Tell whether an environment is a finite problem that every exact solver can take."""
    return isinstance(env, FiniteEnvironment) and len(env.tables.available) <= SMALL_STATES


def _solve(mdp: FiniteMDP, risk: RiskMeasure, small: bool) -> tuple[OptimumRecord | None, str]:
    """Solve for adaptive policies, the largest class, within the time."""
    stoppable = str(risk) == "mean" or str(risk).startswith("cvar:")
    why = f"{mdp.name} has no exact optimum on this page: riskpath solve takes longer than {SECONDS:g} s"
    if not (small or stoppable):
        return None, why
    until = time.monotonic() + SECONDS

    def stop_in_time(done: int, total: int) -> None:
        if time.monotonic() > until:
            raise OutOfTime

    try:
        solution = solve(mdp, risk, "adaptive", progress=stop_in_time)
    except OutOfTime:
        return None, why
    except RiskpathError as error:
        return None, f"{mdp.name} has no exact optimum on this page: {error}"
    how = "exact" if solution.optimal else "best that was found"
    return OptimumRecord(solution.value, how, LawRecord.of(solution.law)), ""
