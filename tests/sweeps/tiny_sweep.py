"""A sweep that takes a moment, as a program that prints its rows: `python -m tests.sweeps.tiny_sweep FOLDER [HEAD]`."""

import dataclasses
import json
import sys
from typing import Any

import riskpath as rp

TINY = rp.IQN(
    rp.CVaR(0.1),
    network=rp.Network(hidden=(4,)),
    training=rp.Training(
        learning_starts=40,
        target_update_interval=10,
        batch_size=4,
        num_quantiles=4,
        num_target_quantiles=4,
        num_action_quantiles=4,
    ),
)
AXES = {"risk.level": [0.1, 0.5], "training.learning_rate": [1e-3, 1e-2, 3e-2, 1e-1]}
HOW: dict[str, Any] = {"steps": 200, "seeds": 2, "max_lanes": 2}


def numbers(result: rp.Sweep) -> list[dict[str, Any]]:
    """Return the rows without the times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in result.rows()]


if __name__ == "__main__":
    folder, *head = sys.argv[1:]
    agent = dataclasses.replace(TINY, network=rp.Network(hidden=(4,), head="table")) if head == ["table"] else TINY
    result = rp.sweep(agent, "RiskyGrid", AXES, **HOW, out=folder)
    assert not result.missing, result.failed
    print(json.dumps(numbers(result)))
