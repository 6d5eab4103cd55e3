"""The floors of a run for a report: mean and risk of the policies for several floors, of its one training."""

import dataclasses

import numpy as np

from riskpath.agents.abilities import Population
from riskpath.mdp.exact.constrained_solver import RiskFrontier, risk_frontier
from riskpath.report.known_optimum import has_few_states
from riskpath.report.run_record import FloorsRecord
from riskpath.risk.measures import Mean
from riskpath.training.run import Run
from riskpath.training.selection import weights_above_floors, with_weights

FLOORS = 5
"""Floors from that of the policy with the best mean to that of the safest one; the trained floor joins them."""
EPISODES = 2_000
"""Episodes of each candidate, and of each seed and floor."""
MOST_STEPS = 20_000_000
"""Floors that need more environment steps than this are left out."""


def floors_of(run: Run) -> tuple[FloorsRecord | None, str]:
    """Return what other floors cost, of a run that was trained for one, and a note if they are left out."""
    agent = run.agents[0]
    if len(run.agents) > 1 or not isinstance(agent, Population) or agent.floor is None:
        return None, ""
    steps, played = run.spec.max_episode_steps, EPISODES * (2 * agent.population()[0] + FLOORS + 3) * run.seeds
    if run.sources or steps is None or steps * played > MOST_STEPS:
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
    best = _exact(run, floors)
    exact = () if best is None else (best.values.tolist(), best.means.tolist())
    return FloorsRecord(str(measure), own, floors, values.tolist(), means.tolist(), *exact), ""


def _exact(run: Run, floors: list[float]) -> RiskFrontier | None:
    """Return the exact frontier of a small finite problem."""
    agent, env = run.agents[0], run.environments[0]
    if not (isinstance(agent, Population) and isinstance(agent.risk, Mean) and has_few_states(env)):
        return None
    return risk_frontier(env.mdp(), agent.floor.measure, floors)
