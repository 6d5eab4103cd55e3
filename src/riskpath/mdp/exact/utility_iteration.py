"""Utility iteration: improve a policy for any measure by solving expected-utility problems.

Near a distribution F, moving to G changes β by about E_G[u] − E_F[u] with the influence function u of β at F. The
iteration solves the expected-utility problem for u, computes the next u from the distribution of the resulting policy,
and repeats. Where β is convex in mixtures of distributions (distortions with concave h, certainty equivalents) the
right side is a lower bound of the change, so no step makes the policy worse; but the result may be a local maximum. So
many utilities are iterated together and the best distribution is kept. On large problems there are fewer of them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.mdp.law import Law
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress, silent
from riskpath.risk.measures import DistortionMeasure, RiskMeasure

STARTS = 96
"""The number of levels from which the iteration starts, in each of three families of utilities."""
ITERATIONS = 40
WORK = 400_000_000
"""The largest number of node outcomes in the first iteration; it limits the number of starts."""
FEWEST = 20
"""The number of starts on the largest problems."""

Probs = Float[np.ndarray, "Z B"]
"""The probabilities of the final returns under each of B policies."""


@dataclass(frozen=True)
class Visited:
    """The distributions that the iteration visited, the best first."""

    graph: ReturnGraph
    values: Float[np.ndarray, " B"]
    """β of every distribution."""
    probs: Probs
    utilities: Utilities
    """The utilities whose best policies have these distributions."""

    def law(self, column: int = 0) -> Law:
        """Return one of the distributions."""
        return Law(self.graph.finals, self.probs[:, column])

    def policy(self, column: int = 0) -> Policy:
        """Return the policy of one of the distributions."""
        return self.graph.best_response(self.utilities[:, [column]]).policy()


def utility_iteration(graph: ReturnGraph, risk: RiskMeasure, keep: int = 1, progress: Progress = silent) -> Visited:
    """Iterate from many starts and return the `keep` best distributions of all that were visited."""
    limit = max(FEWEST, WORK // max(graph.size, 1))
    utilities = first_utilities(graph, risk)
    if (count := utilities.shape[1]) > limit:  # the first, which is the mean, is kept
        utilities = utilities[:, np.unique(np.linspace(0, count - 1, limit).astype(int))]
    best: Visited | None = None
    seen: set[bytes] = set()
    for iteration in range(ITERATIONS):
        progress(iteration, ITERATIONS)
        probs = graph.best_response(utilities).final_probs()
        values = law_values(graph.finals, probs, risk)
        new = []
        for column in np.argsort(-values, kind="stable"):
            key = np.round(probs[:, column], 12).tobytes()
            if key not in seen:
                seen.add(key)
                new.append(column)
        if new:
            best = _best_of(best, Visited(graph, values[new], probs[:, new], utilities[:, new]), keep)
        else:
            break
        new = new[: max(FEWEST // 4, limit // 2)]
        utilities = influences(graph.finals, probs[:, new], risk)
    assert best is not None
    return best


def law_values(finals: Float[np.ndarray, " Z"], probs: Probs, risk: RiskMeasure) -> Float[np.ndarray, " B"]:
    """Return β of every distribution."""
    if not isinstance(risk, DistortionMeasure):
        return np.array([float(risk.of(finals, column / column.sum())) for column in probs.T])
    return finals @ np.diff(np.asarray(risk.weight(cumulative(probs))), axis=0, prepend=0.0)


def influences(finals: Float[np.ndarray, " Z"], probs: Probs, risk: RiskMeasure) -> Utilities:
    """Return the influence function of β at every distribution.

    For a distortion it is u(z) = ∫^z h′(F(x)) dx, linear with slope h′(F) between final returns.
    """
    if isinstance(risk, DistortionMeasure):
        rise = np.asarray(risk.slope(cumulative(probs)))[:-1] * np.diff(finals)[:, None]
        return np.concatenate([np.zeros((1, probs.shape[1])), np.cumsum(rise, axis=0)])
    return np.stack([risk.influence(finals, finals, column / column.sum()) for column in probs.T], axis=1)


def cumulative(probs: Probs) -> Probs:
    """Return the distribution functions of distributions at the final returns."""
    return np.clip(np.cumsum(probs, axis=0), 0.0, 1.0)


def first_utilities(graph: ReturnGraph, risk: RiskMeasure) -> Utilities:
    """Return the first utilities: the mean, caps and floors at many levels, exponentials, u of plain distributions."""
    z = graph.finals[:, None]
    levels = graph.finals[np.unique(np.linspace(0, len(z) - 1, STARTS).astype(int))]
    capped, floored = np.minimum(z, levels), np.maximum(z, levels)
    spread = max(float(np.ptp(z)), 1e-12)
    bends = np.concatenate([-np.geomspace(0.5, 50, 8), np.geomspace(0.5, 50, 8)])
    curved = np.expm1(np.clip(bends * (z - z.mean()) / spread, -200, 200)) / bends
    both = capped + floored[:, ::-1]
    uniform = np.linspace(0, 1, len(z))[:, None]
    laws = np.concatenate([np.clip(uniform**power, 0, 1) for power in (0.25, 0.5, 1.0, 2.0, 4.0)], axis=1)
    own = influences(graph.finals, np.diff(laws, axis=0, prepend=0.0), risk)
    return np.concatenate([z, capped, floored, both, curved, own], axis=1)


def _best_of(known: Visited | None, new: Visited, keep: int) -> Visited:
    values, probs, utilities = new.values, new.probs, new.utilities
    if known is not None:
        values = np.concatenate([known.values, values])
        probs = np.concatenate([known.probs, probs], axis=1)
        utilities = np.concatenate([known.utilities, utilities], axis=1)
    order = np.argsort(-values, kind="stable")[:keep]
    return Visited(new.graph, values[order], probs[:, order], utilities[:, order])
