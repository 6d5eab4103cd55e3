"""Exact and learned results as tables for the terminal."""

import json
from typing import Any

from rich.table import Table

from riskpath.envs.finite import FiniteEnvironment
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.errors import RiskpathError
from riskpath.mdp.exact.goal_recursion import Progress
from riskpath.mdp.grid.problem import GridProblem
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policy_evaluation import describe_policy
from riskpath.mdp.solution import LINES, Solution
from riskpath.mdp.solve import PolicyClass, solve
from riskpath.risk.measures import RiskMeasure
from riskpath.training.measured import SITUATIONS, episodes_for
from riskpath.training.run import Run

CLASSES: tuple[PolicyClass, ...] = ("markov", "nested", "history", "adaptive")
Answer = Solution | GridSolution | RiskpathError


def seeds_in_words(count: int) -> str:
    """Return a number of seeds in words."""
    return f"{count} seeds" if count > 1 else "1 seed"


def solve_all(
    problem: FiniteMDP | GridProblem, risk: RiskMeasure, randomised: bool = False, progress: Progress | None = None
) -> dict[str, Answer]:
    """Solve for every class of policies; where a class does not apply, the answer is the reason."""
    classes = CLASSES if isinstance(problem, FiniteMDP) else ("markov", "adaptive")
    answers: dict[str, Answer] = {}
    for name in [*classes, *(["randomised"] if randomised else [])]:
        policies: Any = "adaptive" if name == "randomised" else name
        try:
            answers[name] = solve(problem, risk, policies, randomised=name == "randomised", progress=progress)
        except RiskpathError as error:
            answers[name] = error
    return answers


def solution_table(problem: FiniteMDP | GridProblem, risk: RiskMeasure, answers: dict[str, Answer]) -> Table:
    """Return a table of the optima for one problem and one measure, with the policies in words."""
    title = f"{problem.name}, discount {problem.discount:g}: {risk} of the whole return"
    table = Table(title=title, title_justify="left")
    for heading in ("policies", "value", "what the policy does", "how sure"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for policies, answer in answers.items():
        if isinstance(answer, RiskpathError):
            table.add_row(policies, "–", str(answer), "")
        elif isinstance(answer, GridSolution):
            table.add_row(policies, f"{answer.value:.6g}", answer.describe(), answer.report, end_section=True)
        else:
            words = answer.decisions() if len(answer.components) < 2 else answer.describe().splitlines()[1:-1]
            table.add_row(policies, f"{answer.value:.6g}", "\n".join(words), answer.report, end_section=True)
    return table


def print_json(record: Any) -> None:
    """Print data as JSON for other programs."""
    print(json.dumps(record, indent=2), flush=True)


def table_of(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table of rows with the same keys, which are the headings."""
    table = Table(title=title, title_justify="left")
    for heading in rows[0] if rows else ():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def lane_records(run: Run, problem: Any, setting: int = 0) -> list[dict[str, Any]]:
    """Return for each seed of one setting its policy in words, the policy's value, and its own estimate."""
    plain, risk, episodes = run.exact_laws(), run.agents[setting].risk, None
    also = plain if plain is None or run.agents[setting].discount == 1 else run.exact_laws(discounted=True)
    if plain is not None and also is not None:
        values, discounted = ([risk.value(law) for law in laws[setting]] for laws in (plain, also))
    else:
        episodes = episodes_for(run, None)
        sample = run.evaluate(episodes)
        values, discounted = sample.values()[setting], sample.values(discounted=True)[setting]
    return [
        {
            "seed": seed,
            "does": _in_words(run, seed, setting, problem),
            "value": float(values[seed]),
            "discounted": float(discounted[seed]),
            "estimate": float(estimate),
            "episodes": episodes,
        }
        for seed, estimate in enumerate(run.estimates()[setting])
    ]


def _in_words(run: Run, seed: int, setting: int, problem: Any) -> str:
    """Describe a policy on a finite problem in a few words."""
    policy, environment = run.policy(seed, setting), run.environments[setting]
    if isinstance(problem, RiskyGrid):
        return problem.path(policy)
    if isinstance(environment, FiniteEnvironment):
        return "\n".join(describe_policy(environment.mdp(), policy, LINES, SITUATIONS))
    return ""


def lanes_table(title: str, risk: RiskMeasure, lanes: list[dict[str, Any]]) -> Table:
    """Return a table with a row for each seed."""
    episodes = lanes[0]["episodes"]
    sampled = "" if episodes is None else f", {episodes:,} episodes"
    headings = {"value": f"{risk}{sampled}", "discounted": "discounted", "estimate": "own estimate (discounted)"}
    rows = [
        {
            "seed": lane["seed"],
            **({"does": lane["does"]} if lane["does"] else {}),
            **{words: f"{lane[key]:.4g}" for key, words in headings.items()},
        }
        for lane in lanes
    ]
    return table_of(title, rows)
