"""Records that are made by hand, with everything that a page can show."""

import numpy as np

from riskpath.report.run_record import (
    BenchRecord,
    CurveRecord,
    FloorsRecord,
    FrontierRecord,
    GridPath,
    GridRecord,
    LawRecord,
    OptimumRecord,
    QuantilesRecord,
    RunRecord,
    SettingRecord,
    SweepRecord,
    TrainingRecord,
)

LEVELS = [(i + 0.5) / 50 for i in range(50)]


def law(seed: int, atoms: int = 200) -> LawRecord:
    """Return a law with many different atoms."""
    returns = np.sort(np.random.default_rng(seed).normal(100 + seed, 40, atoms))
    return LawRecord(returns.tolist(), [1 / atoms] * atoms)


def setting_record(seed: int = 0, risk: str = "cvar:0.1", seeds: int = 8, points: int = 40, **fields) -> SettingRecord:
    """Return a setting whose value depends on the seed."""
    rng = np.random.default_rng(seed)
    values = 50 + 10 * seed + rng.normal(size=seeds)
    curve = np.cumsum(rng.random((seeds, points)), axis=1)
    ends = curve.mean(axis=0) - 1, curve.mean(axis=0) + 1
    believed, realised = np.sort(rng.normal(100, 30, (2, seeds, 50)))
    return SettingRecord(
        **{
            "label": risk,
            "risk": risk,
            "discount": 0.99,
            "value": (values.mean(), values.min(), values.max()),
            "mean": (100.0 + seed, 90.0, 110.0),
            "values": values.tolist(),
            "discounted": values.tolist(),
            "estimates": (values + 1).tolist(),
            "exact": True,
            "episodes": None,
            "law": law(seed),
            "seed_laws": [law(seed + i) for i in range(seeds)],
            "curve": CurveRecord([1_000 * (i + 1) for i in range(points)], curve.tolist(), *(e.tolist() for e in ends)),
            "training": TrainingRecord([1_000, 2_000], *([[x, x + 1] for x in values.tolist()] for _ in range(3))),
            "quantiles": QuantilesRecord(LEVELS, believed.tolist(), realised.tolist()),
            "optimum": OptimumRecord(200.0, "exact", law(99)),
            "grid": GridRecord(
                [(0, 0, "start"), (0, 1, "blue"), (1, 0, "yellow"), (1, 1, "goal")],
                [GridPath([0], [(0, 0, 0, 1, 1.0), (0, 1, 1, 1, 1.0)]), GridPath([1], [(0, 0, 1, 0, 0.25)])],
            ),
            "hyperparameters": {"discount": "0.99", "network.hidden": "(64,)", "training.learning_rate": "0.001"},
            **fields,
        }
    )


def run_record(title: str, seed: int = 0, **fields) -> RunRecord:
    """Return a run."""
    frontier = FrontierRecord([0.1, 1.0], [[70.0, 72.0], [200.0, 210.0]], [[100.0, 99.0], [200.0, 210.0]])
    floors = FloorsRecord("cvar:0.1", 5.0, [0.0, 5.0], [[1.0, 0.0], [6.0, 5.0]], [[9.0, 8.0], [7.0, 6.0]])
    return RunRecord(
        **{
            "title": title,
            "agent": ("IQN", "TQL", "Adaptive")[seed % 3],
            "environment": "RiskyGrid",
            "seeds": 8,
            "steps": 1_000 * (seed + 1),
            "planned": 1_000 * (seed + 1),
            "finished": True,
            "settings": [setting_record(seed)],
            "frontier": frontier,
            "floors": floors if seed == 2 else None,
            "about": {"riskpath": "0.3.0", "python": "3.12"},
            **fields,
        }
    )


def bench_record() -> BenchRecord:
    """Return a benchmark of two agents on two problems; one pair has no share, one is missing."""
    rows = []
    for agent, problem, share in (
        ("IQN", "RiskyGrid", -0.4),
        ("Adaptive", "RiskyGrid", 0.9),
        ("IQN", "Inventory", None),
    ):
        ends = {"share": share, "share_low": share and share - 0.1, "share_high": share and share + 0.1}
        rows.append(
            {"agent": agent, "problem": problem, "risk": "cvar:0.1", **ends}
            | {"gap": 7.5, "gap_low": 5.0, "gap_high": 9.0, "value": 72.0, "value_low": 70.0, "value_high": 74.0}
            | {"mean_optimal": 50.0, "optimum": 79.5, "spread": 100.0, "exact": True, "seeds": 8, "steps": 40_000}
            | {"seconds": 12.5, "device": "cpu", "versions": {"riskpath": "0.3.0"}}
        )
    profiles = [
        {
            "label": "IQN",
            "levels": [-1.0, 0.0, 1.0],
            "part": [1.0, 0.5, 0.1],
            "low": [1.0, 0.4, 0],
            "high": [1, 0.6, 0.2],
        }
    ]
    return BenchRecord("suite", "riskpath bench suite", rows, profiles, ["Adaptive on Inventory, cvar"], {})


def sweep_record() -> SweepRecord:
    """Return a sweep over a number on a logarithmic scale and a list."""
    rows = [
        {
            "settings": {"training.learning_rate": rate, "network.hidden": hidden},
            "values": [rate * 100, rate * 100 + 1],
            "means": [3.0, 4.0],
            "curves": [[[100.0, 1.0], [200.0, rate * 100]]] * 2,
        }
        for rate in (1e-3, 1e-1)
        for hidden in ([64], [64, 64])
    ]
    axes = ["training.learning_rate", "network.hidden"]
    return SweepRecord("rates", "IQN", "RiskyGrid", axes, rows, 2, {"cell 3": "the loss was not a finite number"})
