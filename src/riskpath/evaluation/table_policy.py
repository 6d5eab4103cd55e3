"""The policy of an exact solution as a table, so that it exports and serves like a learned one.

A node is a decision of the policy: its state, action and memory. The table lists the outcomes that can follow each
node, with the node that the policy reaches then. A policy that remembers the return so far has a node for each return.
The program of a step looks up the outcome with the observed state and the nearest reward. Its action is −1 where the
problem has no such outcome.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from riskpath.envs.finite import action_numbers, state_numbers
from riskpath.errors import RiskpathError
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.policy_file import PLATFORMS, write_policy
from riskpath.evaluation.policy_program import TracedPolicy, describe, drawn, plain_name, trace_learned
from riskpath.mdp.grid.market_policy import MarketPolicy
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.policies import Lottery, RandomisedPolicy
from riskpath.mdp.solution import Solution
from riskpath.memory import in_units

MOST_NODES = 1_000_000
"""The longest table."""


MOST_BYTES = 500_000_000
"""The largest tables of an export."""


def export_policy(
    policy: LearnedPolicy | Solution | GridSolution, path: str | Path, platforms: tuple[str, ...] = PLATFORMS
) -> Path:
    """Write a policy to one file for production: a learned one, or that of a solution; return its path.

    Args:
        policy: `run.policy()`, or the result of `rp.solve`.
        path: The file, "policy.zip", or "policy.onnx" for an ONNX model; only an older export is replaced.
        platforms: Where it is to run: "cpu", "cuda", "tpu" or "rocm".
    """
    return write_policy(trace(policy), path, tuple(platforms))


def trace(policy: Any) -> TracedPolicy:
    """Return a policy as a program."""
    if isinstance(policy, LearnedPolicy):
        return trace_learned(policy)
    if isinstance(policy, Solution):
        return trace_solution(policy)
    if isinstance(policy, GridSolution):
        return trace_grid(policy)
    raise RiskpathError(f"a policy must be run.policy() or what rp.solve returned, got a {type(policy).__name__}")


def trace_solution(solution: Solution) -> TracedPolicy:
    """Return the policy of a solution as a program."""
    mdp = solution.mdp
    states, actions = state_numbers(mdp), action_numbers(mdp)
    parts = solution.policy.parts if isinstance(solution.policy, RandomisedPolicy) else ((1.0, solution.policy),)
    nodes: list[tuple[int, list[tuple[int, float, int]]]] = []  # (action, its outcomes)
    first = np.full((len(parts), len(states)), -1, np.int32)
    for member, (_, policy) in enumerate(parts):
        for name, node in _explore(mdp, policy, nodes, states, actions):
            first[member, states[name]] = node
    width = max((len(outcomes) for _, outcomes in nodes), default=0) or 1
    after = {name: np.full((len(nodes), width), -1, np.int32) for name in ("state", "node")}
    rewards = np.zeros((len(nodes), width), np.float32)
    for number, (_, outcomes) in enumerate(nodes):
        for place, (state, reward, node) in enumerate(outcomes):
            after["state"][number, place], after["node"][number, place] = state, node
            rewards[number, place] = reward
    taken = np.array([action for action, _ in nodes], np.int32)
    probs = [prob for prob, _ in parts]

    def step(memory: Any, obs: Any, reward: Any, mask: Any, start: Any, seed: Any) -> Any:
        (node,) = memory
        row = jnp.maximum(node, 0)
        off = jnp.abs(jnp.asarray(rewards)[row] - reward)
        fits = (jnp.asarray(after["state"])[row] == obs) & (node >= 0)
        place = jnp.argmin(jnp.where(fits, off, jnp.inf))
        following = jnp.where(fits[place], jnp.asarray(after["node"])[row][place], -1)
        node = jnp.where(start, jnp.asarray(first)[drawn(seed, probs), obs], following)
        action = jnp.asarray(taken)[jnp.maximum(node, 0)]
        return jnp.where((node >= 0) & mask[action], action, -1), (node,)

    distinct = {(number, state): node for number, (_, rows) in enumerate(nodes) for state, _, node in rows}
    depends = any(distinct[number, state] != node for number, (_, rows) in enumerate(nodes) for state, _, node in rows)
    description = describe(
        (np.int32(0),),
        agent=f"exact {solution.policies} policy",
        risk=str(solution.risk),
        environment=mdp.name,
        observation={"shape": [], "dtype": "int32"},
        num_states=len(states),
        num_actions=len(actions),
        needs_rewards=depends,
        mixed=len(parts) > 1,
        states=[plain_name(name) for name in states],
        actions=[plain_name(name) for name in actions],
    )
    return TracedPolicy(step, description)


def _explore(mdp: Any, policy: Any, nodes: list[Any], states: Any, actions: Any) -> Iterator[tuple[Any, int]]:
    """Append every node that a policy can reach; yield the start states and their nodes."""
    numbers: dict[Any, int] = {}
    queue: list[tuple[int, Any, Any, Any, int]] = []  # (number, state, action, memory, time), in order of time

    def node(state: Any, memory: Any, reward: float, time: int) -> int:
        if mdp.is_terminal(state, time):
            return -1
        answer = policy(state, memory, reward)
        if isinstance(answer, Lottery):
            raise RiskpathError("a policy that draws its actions in every step cannot be exported")
        action, remembered = answer
        if (key := (state, action, remembered)) not in numbers:
            if len(nodes) == MOST_NODES:
                raise RiskpathError(f"the table of this policy has more than {MOST_NODES:,} rows")
            numbers[key] = len(nodes)
            nodes.append((actions[action], []))
            queue.append((numbers[key], state, action, remembered, time))
        return numbers[key]

    for state in mdp.start:
        yield state, node(state, None, 0.0, 0)
    for number, state, action, remembered, time in queue:
        for prob, reward, following in mdp.outcomes[state][action]:
            if prob > 0 and (reached := node(following, remembered, reward, time + 1)) >= 0:
                nodes[number][1].append((states[following], reward, reached))


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
