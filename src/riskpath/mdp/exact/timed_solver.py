"""Backward induction over time and state: measures for which these suffice, and nested risk.

They suffice for the mean, entropic risk, EVaR, worst case and best case.

E[e^{−λZ}] is a product along an episode, so backward induction with the aversion λγᵗ at time t gives the best entropic
risk of the whole return,

    V_t(s) = max_a −log E[exp(−λγᵗ (R + γ V_{t+1}(S′)))] / (λγᵗ),

and the return so far does not matter. EVaR is the supremum of V_0 + log(α)/λ over λ, outside of the maximum over
policies, so a search over one number is global: V_0 falls with λ and log(α)/λ grows, which bounds the objective between
two aversions. The worst and the best case are the same recursion with the smallest and the largest outcome.

The dynamic risk of the paper's appendix, β[R₀ + γ β[R₁ + γ β[R₂ + …]]], is time-consistent, but a different objective:
it applies the measure at every step to numbers that are already risks, so its value is not the risk of any return. The
solution's `value` is the risk of the policy's whole return; the nested risk is in `details["nested_value"]`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.bounded_search import FIRST, search_intervals
from riskpath.mdp.exact.layer_arrays import LayerArrays, layer_arrays, return_bounds, start_nodes
from riskpath.mdp.exact.return_laws import timed_law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import timed_policy
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.measures import RiskMeasure
from riskpath.risk.quantile_measures import BestCase, WorstCase

CLOSE = 1e-7
"""The search ends when the bracket is narrower than this fraction of the range of returns."""
LARGEST = 1e9
"""The largest aversion of the search, for a range of returns of 1."""
PIECE = 4_000_000
"""The largest number of outcomes times aversions in one array."""

Certain = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""Returns a number for every pair and column from the outcomes [P, O, L], their probabilities and the time."""


def solve_nested(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress) -> Solution:
    """Return the policy that attains V_t(s) = max_a β[R + γ V_{t+1}(S′)]."""
    if not risk.monetary:
        raise RiskpathError(f"nested risk adds rewards to values of the measure, and {risk} is not an amount of return")
    tables = mdp.backward(lambda values, probs: float(risk.value(values, probs)), progress)
    best = {(t, s): max(q, key=q.__getitem__) for t, table in enumerate(tables) for s, q in table.items()}
    policy = timed_policy(best)
    first = {state: max(q.values()) for state, q in tables[0].items()} if tables else {}
    nested = float(risk.value([first.get(state, 0.0) for state in mdp.start], list(mdp.start.values())))
    report, details = f"optimal for the nested risk, whose value is {nested:.6g}", {"nested_value": nested}
    return solution_of(mdp, risk, mdp.evaluate(policy), policy, False, report, details, policies="nested")


def solve_timed(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress) -> Solution:
    """Return the best policy of all that may see rewards; it depends on time and state only."""
    layers = layer_arrays(mdp)
    if isinstance(risk, EVaR) and float(risk.level) < 1.0:
        aversion, value, gap, span = search_aversion(mdp, layers, float(risk.level), progress)
        certain, details = _entropic(np.array([aversion]), mdp.discount), {"aversion": aversion}
    else:
        certain, value, gap, span, details = _certain(risk, mdp.discount), None, 0.0, 1.0, {}
    values, pairs = _backward(mdp, layers, certain, 1, choose=True)
    value = float(values[0]) if value is None else value
    law, moved = timed_law(mdp, layers, pairs)
    if moved == 0.0:
        value = float(risk.value(law))
    proven = gap <= 1e-5 * max(span, 1e-12)
    report = "optimal" if proven else f"within {gap:.3g} of the optimum"
    report += "; time and state suffice for this measure"
    if moved:
        report += f"; returns in its distribution are rounded, with a standard deviation of at most {moved:.2g}"
    bounds = (value, value + gap) if gap > 0 else None
    policy = timed_policy(
        {
            (time, state): layer.actions[pair]
            for time, (layer, chosen) in enumerate(zip(layers, pairs, strict=True))
            for state, pair in zip(layer.states, chosen, strict=True)
        }
    )
    return Solution(mdp, risk, "adaptive", value, law, policy, proven, report, details, bounds)


def search_aversion(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], level: float, progress: Progress
) -> tuple[float, float, float, float]:
    """Return the λ that maximises V_0 + log(α)/λ, the value there, how far the supremum can be above, and the range."""
    bounds = return_bounds(layers, [layer.reward for layer in layers], mdp.discount)
    nodes = [node for _, node in start_nodes(mdp, layers)]
    low, high = (np.append(end, 0.0)[nodes] for end in (bounds[0] if bounds else ((), ())))  # at `END` it is 0
    span = max(float(high.max() - low.min()), 1e-12)
    log_level = np.log(level)
    aversions, values, upper = search_intervals(
        np.geomspace(min(np.sqrt(-8 * log_level), LARGEST / 10), LARGEST, FIRST) / span,
        lambda aversions: entropic_values(mdp, layers, aversions),
        rising=lambda aversions: log_level / aversions,
        middle=lambda low, high: np.sqrt(low * high),
        close=CLOSE * span,
        size=sum(layer.prob.size for layer in layers),
        progress=progress,
    )
    objective = values + log_level / aversions
    at = int(objective.argmax())
    low, high = aversions[max(at - 1, 0)], aversions[min(at + 1, aversions.size - 1)]
    chosen, best = float(aversions[at]), float(objective[at])
    for _ in range(4):  # zoom in on the best one
        near = np.geomspace(low, high, 33)
        objective = entropic_values(mdp, layers, near) + log_level / near
        at = int(objective.argmax())
        if objective[at] >= best:
            chosen, best = float(near[at]), float(objective[at])
        low, high = near[max(at - 1, 0)], near[min(at + 1, 32)]
    return chosen, best, max(upper, float(values[-1]), best) - best, span


def entropic_values(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], aversions: Float[np.ndarray, " L"]
) -> Float[np.ndarray, " L"]:
    """Return the best entropic risk of the whole return for every aversion."""
    widest = max((layer.prob.size for layer in layers), default=1)
    width = max(1, PIECE // widest)
    parts = [aversions[at : at + width] for at in range(0, aversions.size, width)]
    return np.concatenate([_backward(mdp, layers, _entropic(part, mdp.discount), part.size)[0] for part in parts])


def _certain(risk: RiskMeasure, discount: float) -> Certain:
    """Return the certainty equivalent of one step."""
    if isinstance(risk, Entropic):
        return _entropic(np.array([float(risk.level)]), discount)
    if isinstance(risk, WorstCase):
        return lambda x, prob, _: np.where(prob[:, :, None] > 0, x, np.inf).min(axis=1)
    if isinstance(risk, BestCase):
        return lambda x, prob, _: np.where(prob[:, :, None] > 0, x, -np.inf).max(axis=1)
    return lambda x, prob, _: (prob[:, :, None] * x).sum(axis=1)


def _entropic(aversions: Float[np.ndarray, " L"], discount: float) -> Certain:
    """Return −log E[e^{−λγᵗX}]/(λγᵗ) of every pair and aversion, without overflow and precise for small λ."""

    def certain(x: np.ndarray, prob: np.ndarray, time: int) -> np.ndarray:
        p, scale = prob[:, :, None], np.maximum(aversions * discount**time, 1e-200)
        low = np.where(p > 0, x, np.inf).min(axis=1)
        short = (p * np.expm1(-scale * np.maximum(x - low[:, None], 0.0))).sum(axis=1)
        near = short > -0.5
        far = np.where(near, 1.0, (p * np.exp(-scale * np.maximum(x - low[:, None], 0.0))).sum(axis=1))
        return low - np.where(near, np.log1p(np.where(near, short, 0.0)), np.log(far)) / scale

    return certain


def _backward(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], certain: Certain, columns: int, choose: bool = False
) -> tuple[Float[np.ndarray, " L"], list[np.ndarray]]:
    """Return the best values from the start, and with `choose` the best pair of every time and state (one column).

    Of equally good actions, the one with the largest mean under the rest of the policy is chosen.
    """
    following, means = np.zeros((1, columns)), np.zeros(1)
    chosen: list[np.ndarray] = []
    for time in reversed(range(len(layers))):
        layer = layers[time]
        q = certain(layer.reward[:, :, None] + mdp.discount * following[layer.next], layer.prob, time)
        best = np.maximum.reduceat(q, layer.first_pair[:-1])
        if choose:
            expected = (layer.prob * (layer.reward + mdp.discount * means[layer.next])).sum(axis=1)
            slack = 1e-12 * np.maximum(1.0, np.abs(best[:, 0]))
            tied = q[:, 0] >= (best[:, 0] - slack)[layer.state_of_pair]
            score = np.where(tied, expected, -np.inf)
            top = np.flatnonzero(score >= layer.best(score)[layer.state_of_pair])
            pair = top[np.searchsorted(top, layer.first_pair[:-1])]
            chosen.append(pair)
            means = np.append(expected[pair], 0.0)
        following = np.concatenate([best, np.zeros((1, columns))])
    probs, nodes = zip(*start_nodes(mdp, layers), strict=True)
    return certain(following[list(nodes)][None], np.array([probs]), 0)[0], chosen[::-1]
