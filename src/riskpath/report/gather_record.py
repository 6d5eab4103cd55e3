"""Everything that a report shows of a run: its greedy policies are evaluated, exactly where the problem is small.

Each part is bounded in time, to a few seconds for a run: what would take longer is left out, with a note that says so.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.abilities import Population, Quantiles
from riskpath.envs.finite import FiniteEnvironment
from riskpath.evaluation.bootstrap import Interval
from riskpath.evaluation.evaluation import setting_labels
from riskpath.evaluation.rollout import initial_quantiles
from riskpath.hyperparameters import flat_settings
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.nn.losses import midpoints
from riskpath.plot.curves import mean_interval
from riskpath.report.known_optimum import Lookup, find_optimum
from riskpath.report.page import require_page, write_page
from riskpath.report.run_record import (
    CurveRecord,
    LawRecord,
    QuantilesRecord,
    RunRecord,
    SettingRecord,
    TrainingRecord,
    Triple,
)
from riskpath.report.served import floors_of, frontier_of
from riskpath.report.walks import grid_of
from riskpath.risk.measures import Mean
from riskpath.training.measured import Measured, episodes_for
from riskpath.training.run import Run
from riskpath.version import versions

EPISODES = 2_000
"""Sampled episodes of each seed where there is no exact distribution, in environments of the compiled program."""
SHORT = 12
"""The most steps of an episode for exact discounted distributions, where nearly every path has a different return."""
LEVELS, STARTS = 50, 16
"""The number of quantiles on a page, and of random starts that are asked for them."""
RESAMPLES = 400


def write_report(run: Run, path: str | Path, title: str | None = None) -> Path:
    """Write one HTML page with all figures and tables of a run and return its path; only a page is replaced."""
    require_page(path)  # before the work
    record = gather(run, title)
    return write_page(path, [record], title=record.title)


def gather(
    run: Run,
    title: str | None = None,
    *,
    about: dict[str, str] | None = None,
    lookup: Lookup | None = None,
) -> RunRecord:
    """Return the record of a run, with more facts `about` it; `lookup` returns optima that are known already."""
    env, name, agent = run.environments[0], run.environment_name, type(run.agents[0]).__name__
    if isinstance(env, FiniteEnvironment) and name == FiniteMDP.name:  # a nameless table gets one from its numbers
        name = f"{name} {env.digest[:6]}"
    notes, (found, discounted, note) = list(run.notices), _measured(run)
    estimates, believed = run.estimates(), _believed(run) if isinstance(run.agents[0], Quantiles) else None
    labels = setting_labels([one.risk for one in run.agents])
    settings = []
    for number, one in enumerate(run.agents):
        laws, exact = found.laws[number], found.exact is not None
        floored = isinstance(one, Population) and one.floor is not None  # the optimum without it says little
        optimum, why = (None, "") if floored else find_optimum(run.environments[number], one.risk, exact, lookup)
        notes += [line for line in (note, why) if line and line not in notes]
        settings.append(
            SettingRecord(
                label=labels[number],
                risk=str(one.risk),
                discount=float(one.discount),
                value=_ends(found.interval(one.risk, number, RESAMPLES)),
                mean=_ends(found.interval(Mean(), number, RESAMPLES)),
                values=[law.risk(one.risk) for law in laws],
                discounted=[law.risk(one.risk) for law in discounted[number]],
                estimates=estimates[number].tolist(),
                exact=exact,
                episodes=found.episodes,
                law=LawRecord.of(Law.mix(laws, [1 / len(laws)] * len(laws))),
                seed_laws=[LawRecord.of(law) for law in laws] if len(laws) > 1 else [],
                curve=_curve(run.curve, number, (len(run.agents), run.seeds)),
                training=_training([{"step": run.steps, **run.recent_figures()}], number, run.seeds),
                quantiles=None if believed is None else _quantiles(believed[number], discounted[number]),
                optimum=optimum,
                grid=grid_of(run, number) if exact else None,
                hyperparameters=flat_settings(one),
            )
        )
    (frontier, note), (floors, other_note) = frontier_of(run), floors_of(run)
    return RunRecord(
        title=title or f"{agent} on {name}",
        agent=agent,
        environment=name,
        seeds=run.seeds,
        steps=run.steps,
        planned=run.plan.goal if run.plan else None,
        finished=run.finished,
        settings=settings,
        frontier=frontier,
        floors=floors,
        about={**facts(run), **(about or {})},
        notes=[*notes, *filter(None, (note, other_note))],
    )


def _measured(run: Run) -> tuple[Measured, list[list[Law]], str]:
    """Return the returns, the distributions of discounted returns, and a note if only the first are exact."""
    risks, limit = [agent.risk for agent in run.agents], run.spec.max_episode_steps or np.inf
    plain = run.exact_laws()
    undiscounted = all(float(agent.discount) == 1 for agent in run.agents)
    exact = plain if undiscounted else run.exact_laws(discounted=True) if plain and limit <= SHORT else None
    if plain is not None and exact is not None:
        return Measured(risks, exact=plain), exact, ""
    episodes = episodes_for(run, None, EPISODES)
    sample = run.evaluate(episodes, seed=1)
    discounted = Measured(risks, sample=dataclasses.replace(sample, returns=sample.discounted)).laws
    if plain is None:
        return Measured(risks, sample=sample), discounted, ""
    note = f"Discounted returns are those of {episodes:,} episodes of each seed, others are exact."
    return Measured(risks, exact=plain), discounted, note


def _ends(interval: Interval) -> Triple:
    return interval.estimate, interval.low, interval.high


def extended(record: RunRecord, logged: list[dict[str, Any]]) -> RunRecord:
    """Return a record with the training episodes of a log and, if training is running, its evaluations as well."""
    evaluations = [(entry["step"], entry.get("evaluation")) for entry in logged if not record.finished]
    points = [{**point, "step": step} for step, point in evaluations if isinstance(point, dict)]
    settings = []
    for number, setting in enumerate(record.settings):
        old, known = setting.curve, setting.curve.steps[-1] if setting.curve else -1
        new = _curve([p for p in points if p["step"] > known], number, (len(record.settings), record.seeds))
        if old and new:
            values = [one + other for one, other in zip(old.seeds, new.seeds, strict=True)]
            new = CurveRecord(old.steps + new.steps, values, *_mean_bands(np.array(values)))
        training = _training(logged, number, record.seeds) or setting.training
        settings.append(dataclasses.replace(setting, curve=new or old, training=training))
    steps = max((entry["step"] for entry in logged), default=0)
    if record.finished or steps <= record.steps:
        return dataclasses.replace(record, settings=settings)
    note = f"Policies are those of the last checkpoint, after {record.steps:,} steps; training is at {steps:,}."
    return dataclasses.replace(record, settings=settings, steps=steps, notes=[note, *record.notes])


def _curve(points: list[dict[str, Any]], setting: int, shape: tuple[int, int]) -> CurveRecord | None:
    """Return the learning curve of one setting; points of an evaluator of the user's own may have other content."""
    kept = [point for point in points if np.shape(point.get("values", ())) == shape]
    if not kept:
        return None
    values = np.array([point["values"][setting] for point in kept], np.float64).T
    return CurveRecord([point["step"] for point in kept], values.tolist(), *_mean_bands(values))


def _training(points: list[dict[str, Any]], setting: int, seeds: int) -> TrainingRecord | None:
    """Return the training episodes of one setting, from points as callbacks see them."""
    names = ("ep_rew_mean", "ep_rew_risk", "ep_len_mean")
    kept = [point for point in points if all(name in point for name in names)]
    own = slice(setting * seeds, (setting + 1) * seeds)
    figures = [np.array([point[name][own] for point in kept], np.float64) for name in names]
    if not kept or any(one.shape != (len(kept), seeds) for one in figures):
        return None
    return TrainingRecord([int(point["step"]) for point in kept], *(one.T.tolist() for one in figures))


def _mean_bands(values: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the ends of the interval of the mean over seeds; none for one seed."""
    if len(values) < 2 or not np.isfinite(values).all():
        return [], []
    low, high = mean_interval(values)
    return low.tolist(), high.tolist()


def _believed(run: Run) -> np.ndarray:
    """Return the quantiles that every lane predicts at the start, over several starts: [settings, seeds, levels]."""
    env = run.environments[0]
    one = bool(run.sources) or (isinstance(env, FiniteEnvironment) and env.problem and len(env.problem.start) == 1)
    levels, lanes = jnp.asarray(midpoints(LEVELS)), run.lanes
    draws = [
        initial_quantiles(lanes.agent, lanes.agent_state, run.spec, *run.first_inputs(draw), taus=levels)
        for draw in range(1 if one else STARTS)
    ]
    pooled = np.sort(np.concatenate([np.asarray(draw) for draw in draws], axis=1), axis=1)
    kept = pooled[:, len(draws) // 2 :: len(draws)]
    return kept.reshape(len(run.agents), run.seeds, -1)


def _quantiles(believed: np.ndarray, realised: list[Law]) -> QuantilesRecord:
    levels = np.asarray(midpoints(LEVELS), np.float64)
    return QuantilesRecord(levels.tolist(), believed.tolist(), [law.quantile(levels).tolist() for law in realised])


def facts(run: Run) -> dict[str, str]:
    """Return what is known about the environment, the machine and the versions."""
    spec, env = run.spec, run.environments[0]
    facts = {"environment": run.environment_name}
    if isinstance(env, FiniteEnvironment):
        facts["states"] = f"{len(env.tables.available):,}"
    elif not run.sources:
        facts |= {f"environment.{key}": text for key, text in flat_settings(env).items() if len(text) < 200}
    else:
        facts["observation"] = str(spec.observation_shape)
    discrete = " × ".join(map(str, spec.action_heads or (spec.num_actions,)))
    facts["actions"] = f"{spec.action_size} continuous" if spec.action_size else discrete
    if spec.max_episode_steps:
        facts["longest episode"] = f"{spec.max_episode_steps:,} steps"
    facts |= {"seeds": str(run.seeds), "environments for each seed": str(run.lanes.num_envs)}
    return {**facts, **versions(), "device of this report": jax.local_devices()[0].device_kind}
