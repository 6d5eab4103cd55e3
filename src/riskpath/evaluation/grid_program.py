"""The policy of a problem on a grid as a program: its tables, and the model of one step that reads them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.evaluation.policy_tracing import TracedPolicy, describe, plain_name
from riskpath.mdp.grid.market_policy import MarketPolicy
from riskpath.mdp.grid.solution import GridSolution
from riskpath.memory import in_units

MOST_BYTES = 500_000_000
"""The largest tables of an export."""


def trace_grid(solution: GridSolution) -> TracedPolicy:
    """Return the policy of a solution on a grid as a program; its memory is the time and the return so far."""
    policy, problem = solution.policy, solution.problem
    if policy.memory_bytes > MOST_BYTES:
        raise RiskpathError(
            f"the tables of this policy take {in_units(policy.memory_bytes)}; an export has at most "
            f"{in_units(MOST_BYTES)}: solve on a coarser grid, grid_problem(resolution=0.5)"
        )
    decide, count, discount = policy.decider(), len(problem.axes), jnp.float32(problem.discount)
    adaptive = (policy.tail if isinstance(policy, MarketPolicy) else policy.expected) is not None

    def step(memory: Any, obs: Any, reward: Any, mask: Any, start: Any, seed: Any) -> Any:
        time, total = memory
        total = jnp.where(start, 0.0, total + discount ** time.astype(jnp.float32) * reward)
        time = jnp.where(start, 0, time + 1)
        action = decide(jnp.minimum(time, problem.steps - 1), tuple(obs[i] for i in range(count)), total)
        return jnp.where((time < problem.steps) & mask[action], action, -1), (time, total)

    labels = [problem.label(number) for number in range(len(problem.actions))]
    description = describe(
        (np.int32(0), np.float32(0)),
        agent=f"{solution.policies} policy on a grid",
        risk=str(solution.risk),
        environment=problem.name,
        observation={"shape": [count], "dtype": "float32"},
        first_entries=problem.read_state is None,
        num_actions=len(labels),
        needs_rewards=adaptive,
        actions=[plain_name(label.tolist() if hasattr(label, "tolist") else label) for label in labels],
    )
    return TracedPolicy(step, description)
