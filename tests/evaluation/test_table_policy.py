"""Exact policies export and serve as tables that play like the policies themselves."""

from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.policies import RandomisedPolicy
from tests.evaluation.policies import MAZE

CASES: dict[str, tuple[Any, Any]] = {
    "markov": (MAZE, "markov"),
    "history": (rp.RiskyGrid(forks=2).mdp(), "history"),
    "adaptive": (MAZE, "adaptive"),
    "adaptive, grid": (rp.RiskyGrid(forks=2).mdp(), "adaptive"),
}

pytestmark = pytest.mark.usefixtures("unchecked_module")


def play(mdp, exported, own, rng) -> None:
    """Play an episode; compare every action."""
    state, memory, own_memory, reward, time = next(iter(mdp.start)), None, None, 0.0, 0
    while not mdp.is_terminal(state, time):
        action, memory = exported(state, memory, reward)
        expected, own_memory = own(state, own_memory, reward)
        assert action == expected
        outcomes = mdp.outcomes[state][expected]
        outcome = outcomes[rng.choice(len(outcomes), p=[one.prob for one in outcomes])]
        state, reward, time = outcome.next, outcome.reward, time + 1


@pytest.mark.parametrize("name", CASES)
def test_a_table_plays_like_the_policy(name, tmp_path):
    mdp, policies = CASES[name]
    solution = rp.solve(mdp, "cvar:0.3", policies=policies)
    exported, rng = (
        rp.load_policy(rp.export_policy(solution, tmp_path / "policy.zip", ("cpu",))),
        np.random.default_rng(0),
    )
    for _ in range(30):
        play(mdp, exported, solution.policy, rng)
    assert exported.description["agent"] == f"exact {policies} policy"


@pytest.mark.parametrize("policies", ["markov", pytest.param("adaptive", marks=pytest.mark.long)])
def test_a_policy_on_a_grid_plays_from_its_file(policies, tmp_path):
    problem = rp.GridProblem(
        axes={"place": np.linspace(-3.0, 3.0, 31)},
        actions=[-1.0, 0.0, 1.0],
        steps=4,
        start=(0.0,),
        noise=rp.finite_noise([-1.0, 1.0]),
        decide=lambda time, state, action: ((state[0] + 0.3 * action,), -0.1 * action * action),
        move=lambda time, state, noise: ((0.9 * state[0] + 0.2 * noise,), state[0] * noise),
        return_points=101,
        action_labels=[-10, 0, 10],
    )
    solution = rp.solve(problem, "cvar:0.25", policies)
    exported = rp.load_policy(rp.export_policy(solution, tmp_path / "policy.zip", ("cpu",)))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(20):
        memory, own_memory, observation, reward = None, None, np.zeros(2), 0.0
        for step in range(4):
            observation, reward = np.array([rng.uniform(-3, 3), step]), float(rng.normal())  # the first entry counts
            action, memory = exported(observation, memory, reward)
            expected, own_memory = solution.policy(observation, own_memory, reward)
            assert action == expected
            seen.add(action)
        with pytest.raises(rp.RiskpathError, match="the problem has no such step"):
            exported(observation, memory, reward)
    assert seen <= {-10, 0, 10}
    assert len(seen) > 1


def test_a_randomised_policy_draws_at_the_start():
    solution = rp.solve(MAZE, "cvar:0.3", policies="adaptive")
    always, other = {"a": "on", "b": "on"}, {"a": "out", "b": "back"}
    mixed = RandomisedPolicy(((0.25, rp.MarkovPolicy(always)), (0.75, rp.MarkovPolicy(other))))
    solution = type(solution)(**{**vars(solution), "policy": mixed})
    exported = rp.PolicyServer(solution, port=0).policies["policy"]
    actions, memories = exported.act_batch(np.zeros(2_000, np.int32))
    assert abs(np.mean(actions == exported.description["actions"].index("out")) - 0.75) < 0.04
    later, _ = exported.act_batch(np.ones(2_000, np.int32), memories, np.full(2_000, 2.0))
    drawn = actions == exported.description["actions"].index("out")
    np.testing.assert_array_equal(later == exported.description["actions"].index("back"), drawn)


def test_what_is_not_in_the_table_is_refused_in_one_line(tmp_path):
    exported = rp.load_policy(rp.export_policy(rp.solve(MAZE, "cvar:0.3"), tmp_path / "policy.zip", ("cpu",)))
    _, memory = exported("a")
    with pytest.raises(rp.RiskpathError, match="the policy has no action here"):
        exported("end", memory, 1.0)
    with pytest.raises(rp.RiskpathError, match=r"must be run.policy\(\) or what rp.solve returned, got a float"):
        rp.PolicyServer({"x": 3.0})
