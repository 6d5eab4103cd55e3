"""What the one training of a run serves, for a report: the policies for a few levels of CVaR, or for a few floors."""

import dataclasses

import numpy as np

from riskpath.agents.abilities import Population, can_serve
from riskpath.errors import RiskpathError
from riskpath.mdp.exact.constrained_solver import risk_frontier
from riskpath.mdp.exact.frontier import finite_frontier
from riskpath.report.known_optimum import has_few_states
from riskpath.report.run_record import FloorsRecord, FrontierRecord
from riskpath.risk.measures import CVaR, Mean
from riskpath.training.run import Run
from riskpath.training.selection import weights_above_floors, with_weights

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
FLOORS = 5
"""Floors from that of the policy with the best mean to that of the safest one; the trained floor joins them."""
EPISODES = 2_000
"""Episodes of each seed and level, and of each candidate, seed and floor."""
RESAMPLES = 400
MOST_STEPS = 20_000_000
"""What needs more environment steps than this is left out."""


def frontier_of(run: Run) -> tuple[FrontierRecord | None, str]:
    """Return the frontier of a run that serves other levels of CVaR, and a note if it is left out.

    Figures are exact where the policies can be evaluated exactly, so that none lies above the exact optimum. Elsewhere
    they come from sampled episodes and have intervals.

    The critic's own choice of a first goal is played, unless the agent says how many held-out episodes compare it with
    others; `run.frontier` always compares, which takes longer.
    """
    agent, env = run.agents[0], run.environments[0]
    if len(run.agents) > 1 or not all(can_serve(agent, CVaR(level)) for level in (0.5, 0.05)):
        return None, ""
    if _takes_long(run, EPISODES * len(LEVELS) * run.seeds):
        return None, "The frontier takes long here and is left out: run.frontier() and riskpath frontier compute it."
    if isinstance(agent, Population) and agent.population()[1] is None:
        agent = dataclasses.replace(agent, selection_episodes=0)
    found = dataclasses.replace(run, agents=[agent]).serve(*map(CVaR, LEVELS)).measure(EPISODES, seed=1)
    record = FrontierRecord(list(LEVELS), found.values().tolist(), found.means().tolist())
    if found.sample is not None:
        intervals = [(one.estimate, one.low, one.high) for one in found.sample.risk(resamples=RESAMPLES)]
        record = dataclasses.replace(record, intervals=intervals)
    try:
        best = finite_frontier(env.mdp(), list(LEVELS)) if has_few_states(env) else None
    except RiskpathError:
        best = None
    if best is not None:
        record = dataclasses.replace(record, best_values=best.values.tolist(), best_means=best.means.tolist())
    return record, ""


def floors_of(run: Run) -> tuple[FloorsRecord | None, str]:
    """Return what other floors cost, of a run that was trained for one, and a note if they are left out."""
    agent, env = run.agents[0], run.environments[0]
    if len(run.agents) > 1 or not isinstance(agent, Population) or agent.floor is None:
        return None, ""
    if _takes_long(run, EPISODES * (2 * agent.population()[0] + FLOORS + 3) * run.seeds):
        return None, "Other floors take long here and are left out: run.floors() and riskpath frontier compute them."
    if agent.population()[1] is None:
        run = dataclasses.replace(run, agents=[dataclasses.replace(agent, selection_episodes=EPISODES)])
    measure, own = agent.floor.measure, agent.floor.least

    def served(floors: list[float]) -> np.ndarray:
        """Return the value of the measure and the mean for each floor and seed."""
        lanes = (with_weights(run.lanes, weights) for weights in weights_above_floors(run, floors))
        found = [dataclasses.replace(run, lanes=one).measure(EPISODES, seed=1) for one in lanes]
        return np.array([[one.values(risk)[0] for one in found] for risk in (measure, Mean())])

    widest = served([-1e30, 1e30])[0]
    floors = sorted({own, *np.linspace(np.median(widest[0]), np.median(widest[1]), FLOORS).tolist()})
    values, means = served(floors)
    record = FloorsRecord(str(measure), own, floors, values.tolist(), means.tolist())
    if isinstance(agent.risk, Mean) and has_few_states(env):
        best = risk_frontier(env.mdp(), measure, floors)
        record = dataclasses.replace(record, best_values=best.values.tolist(), best_means=best.means.tolist())
    return record, ""


def _takes_long(run: Run, episodes: int) -> bool:
    steps = run.spec.max_episode_steps
    return bool(run.sources) or steps is None or steps * episodes > MOST_STEPS
