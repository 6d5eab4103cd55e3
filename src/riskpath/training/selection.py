"""After training: choose among the members of each lane's population, and serve other measures than the trained one.

An agent whose state holds several policies (`Agent.population`) plays each of them on held-out episodes. From then on
it plays the one that it prefers itself (`Agent.preferred`), or another one, or a mixture, that is clearly better.
Training itself does not depend on the choice.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.evaluation.mixing import best_mixture
from riskpath.risk.measures import RiskMeasure
from riskpath.training.lanes import Lanes, is_swept, stack

HELD_OUT = 1_000_003
"""Seed of the held-out episodes."""


def select_members(run: Any) -> Lanes:
    """Return the lanes with the best member, or mixture of members, of each."""
    agent, lanes = run.agents[0], run.lanes
    count, episodes = agent.population()
    if not episodes:
        return lanes
    played = [run.sample_returns(_play(lanes, np.eye(count)[member]), episodes, HELD_OUT) for member in range(count)]
    returns = np.stack([discounted for _, discounted, _ in played], axis=1)  # [lanes, members, episodes]
    risks = [agent.risk for agent in run.agents for _ in range(run.seeds)]
    preferred = np.asarray(eqx.filter_vmap(lambda agent, state: agent.preferred(state))(lanes.agent, lanes.agent_state))
    weights = np.stack([best_mixture(*one) for one in zip(risks, returns, preferred.tolist(), strict=True)])
    return _with_weights(lanes, weights)


def _play(lanes: Lanes, weights: np.ndarray) -> Lanes:
    """Return lanes that all play one member."""
    return _with_weights(lanes, np.tile(weights, (lanes.agent_state.gradient_steps.shape[0], 1)))


def _with_weights(lanes: Lanes, weights: np.ndarray) -> Lanes:
    state = _set_weights(lanes.agent, lanes.agent_state, jax.device_put(weights.astype(np.float32)))
    return eqx.tree_at(lambda s: s.agent_state, lanes, state)


@eqx.filter_jit
def _set_weights(agent: Agent, state: Any, weights: Array) -> Any:
    return eqx.filter_vmap(lambda agent, state, weights: agent.with_members(state, weights))(agent, state, weights)


def serve(run: Any, risks: Sequence[RiskMeasure]) -> tuple[list[Agent], Lanes]:
    """Return agents and lanes for other measures than the trained one: a setting for each measure.

    Every measure is served by the lanes of the first setting; seeds stay apart.
    """
    trained = run.agents[0]
    for risk in risks:
        if not trained.can_serve(risk):
            raise RiskpathError(
                f"this run was trained for {trained.risk} and cannot serve {risk}: "
                "rp.Adaptive trained for a CVaR serves all its levels; run.evaluate().risk(…) measures this policy"
            )
    agents = [eqx.tree_at(lambda a: a.risk, trained, risk, is_leaf=_is_risk) for risk in risks]
    lanes = run.lanes
    state, env, keys = _repeat_first((lanes.agent_state, lanes.env, lanes.keys), run.seeds, len(risks))
    agent = stack(agents, run.seeds, is_swept)
    parts = (agent, env, _refresh(agent, state), keys)
    return agents, eqx.tree_at(lambda s: (s.agent, s.env, s.agent_state, s.keys), lanes, parts)


@eqx.filter_jit
def _repeat_first(tree: Any, seeds: int, times: int) -> Any:
    """Return the lanes of the first setting several times."""
    first = lambda x: jnp.tile(x[:seeds], (times, *[1] * (x.ndim - 1))) if eqx.is_array(x) else x  # noqa: E731
    return jax.tree.map(first, tree)


def _is_risk(x: Any) -> bool:
    return isinstance(x, RiskMeasure)


@eqx.filter_jit
def _refresh(agent: Agent, state: Any) -> Any:
    return eqx.filter_vmap(lambda agent, state: agent.refresh(state))(agent, state)
