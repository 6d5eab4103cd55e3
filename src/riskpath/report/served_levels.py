"""The frontier of a run for a report: mean and CVaR of the policies for a few levels, of its one training."""

import dataclasses

from riskpath.agents.abilities import Population, can_serve
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.mdp.exact.frontier import Frontier, finite_frontier
from riskpath.report.known_optimum import has_few_states
from riskpath.report.run_record import FrontierRecord
from riskpath.risk.measures import CVaR
from riskpath.training.run import Run

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
EPISODES = 2_000
"""Episodes of each seed and level."""
RESAMPLES = 400
MOST_STEPS = 20_000_000
"""A frontier that needs more environment steps than this is left out."""


def frontier_of(run: Run) -> tuple[FrontierRecord | None, str]:
    """Return the frontier of a run that serves other levels of CVaR, and a note if it is left out.

    Figures are exact where the policies can be evaluated exactly, so that none lies above the exact optimum. Elsewhere
    they come from sampled episodes and have intervals.

    The critic's own choice of a first goal is played, unless the agent says how many held-out episodes compare it with
    others; `run.frontier` always compares, which takes longer.
    """
    agent = run.agents[0]
    if len(run.agents) > 1 or not all(can_serve(agent, CVaR(level)) for level in (0.5, 0.05)):
        return None, ""
    steps = run.spec.max_episode_steps
    if run.sources or steps is None or steps * EPISODES * len(LEVELS) * run.seeds > MOST_STEPS:
        return None, "The frontier takes long here and is left out: run.frontier() and riskpath frontier compute it."
    if isinstance(agent, Population) and agent.population()[1] is None:
        agent = dataclasses.replace(agent, selection_episodes=0)
    found = dataclasses.replace(run, agents=[agent]).serve(*map(CVaR, LEVELS)).measure(EPISODES, seed=1)
    intervals = None
    if found.sample is not None:
        intervals = [(one.estimate, one.low, one.high) for one in found.sample.risk(resamples=RESAMPLES)]
    best = _exact(run.environments[0])
    exact = () if best is None else (best.values.tolist(), best.means.tolist())
    return FrontierRecord(
        list(LEVELS), found.values().tolist(), found.means().tolist(), *exact, intervals=intervals
    ), ""


def _exact(env: Environment) -> Frontier | None:
    """Return the exact frontier of a small finite problem."""
    if not has_few_states(env):
        return None
    try:
        return finite_frontier(env.mdp(), list(LEVELS))
    except RiskpathError:
        return None
