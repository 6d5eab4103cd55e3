"""Compare policies on a grid as ONNX models with the same policies as StableHLO programs, at random states.

    .venv-onnx/bin/python benchmarks/speed/onnx_grids.py

Both formats compare alternatives in single precision, so that they may choose differently where two actions are worth
the same. Where they do, both actions are scored as the policy scores them: `largest loss` is by how much the worse one
falls short, in the unit of the utility. Results go to benchmarks/results/onnx.json, under `grids`.
"""

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

import riskpath as rp
from riskpath.files import write_json
from riskpath.mdp.grid import play, policy

STATES, RISK, SECONDS = 3_000, "cvar:0.1", 20.0
OUT = Path(__file__).parents[1] / "results" / "onnx.json"


def states(problem: rp.GridProblem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random times, points of the axes and returns so far; prices lie between the points of their axis."""
    first, *others = problem.axes.values()
    prices = rng.uniform(first[0], first[-1], STATES)
    points = np.stack([prices, *(rng.choice(axis, STATES) for axis in others)], axis=1).astype(np.float32)
    totals = rng.choice([0.0, 0.5, 1.0], STATES) * rng.normal(size=STATES)
    return rng.integers(1, problem.steps, STATES), points, totals.astype(np.float32)


def scores(solution: Any, time: int, point: np.ndarray, total: float) -> np.ndarray:
    """Return the score of every action, as the policy computes it."""
    found: list[np.ndarray] = []

    def keeping(function: Any) -> Any:
        def keep(score: Any, *rest: Any) -> Any:
            found.append(np.asarray(score).reshape(len(score)))
            return function(score, *rest)

        return keep

    functions = [(play, "_take"), (policy, "first_best")]  # the two that choose an action by its score
    with contextlib.ExitStack() as stack:
        for module, name in functions:
            stack.enter_context(patch.object(module, name, keeping(getattr(module, name))))
        stack.enter_context(jax.disable_jit())
        solution.policy.decider()(np.int32(time), tuple(np.float32(x) for x in point), np.float32(total))
    return found[-1]


def compare(env: Any, policies: Any, folder: Path) -> dict[str, Any]:
    """Return how often the formats choose the same action, and what the others lose."""
    problem = env.grid_problem()
    solution = rp.solve(problem, RISK, policies, time_limit=SECONDS)
    both = [rp.load_policy(rp.export_policy(solution, folder / name)) for name in ("policy.onnx", "policy.zip")]
    times, points, totals = states(problem, np.random.default_rng(0))
    memories = (times.astype(np.int32) - 1, totals)
    theirs, ours = (one.act_batch(points, memories, np.zeros(STATES))[0] for one in both)
    losses, sizes = [], []
    differ = np.flatnonzero(ours != theirs)
    for at in differ:
        score = scores(solution, times[at], points[at], totals[at])
        losses.append(abs(float(score[ours[at]] - score[theirs[at]])))
        sizes.append(float(np.abs(score[np.isfinite(score)]).max()))
    return {
        "policy": str(solution.policy),
        "states": STATES,
        "equal": int(np.sum(ours == theirs)),
        "distinct": len(np.unique(ours)),
        "lowest price of the others": float(points[differ, 0].min()) if len(differ) else None,
        "largest loss": max(losses, default=0.0),
        "largest loss, share of the score": max((a / b for a, b in zip(losses, sizes, strict=True)), default=0.0),
    }


def main() -> None:
    record = json.loads(OUT.read_text())
    rows = record.setdefault("grids", {})
    for env in (rp.AmericanPut(), rp.MeanReversionTrading()):
        for policies in ("markov", "adaptive"):
            name = f"{type(env).__name__}, {policies}"
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = compare(env, policies, Path(folder))
            print(name, json.dumps(rows[name]), flush=True)
            write_json(OUT, record)


if __name__ == "__main__":
    main()
