"""After training: choose among the candidates of each lane's population, and serve other measures than the trained one.

An agent whose state holds several policies (`Population`) plays each of them on held-out episodes. The best one, or the
best mixture, is kept (`agents/adaptive/elimination.py`, `mixing.py`). Training itself does not depend on the choice.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.agents.abilities import Population, Refreshes, can_serve
from riskpath.agents.adaptive.elimination import HELD_OUT, blocks_of_selection, eliminate
from riskpath.agents.adaptive.mixing import best_above_floor, best_mixture
from riskpath.agents.agent import Agent
from riskpath.agents.clock import Clock
from riskpath.errors import RiskpathError
from riskpath.risk.measures import RiskMeasure
from riskpath.training.lanes import Lanes, is_swept, stack
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.measured import Progress, sample_returns
from riskpath.training.run_state import RunState

Player = Callable[[Int[np.ndarray, " L"], int], Float[np.ndarray, "L N"]]
"""Returns a block of returns for each lane, given the candidate that it plays and a seed."""
SHARE, SHARE_ON_HOST = 2.0, 0.25
"""Environment steps of the selection relative to those of training, at most: in an environment that is part of the
program, where playing takes a fraction of the time of learning, and in one that the host steps."""
FEWEST, MOST = 200, 10_000
"""Episodes of each candidate in the first round. If the host may not play the fewest, the critic is trusted."""
MOST_SHARE = 20.0
"""A small training skips the selection: if the fewest episodes have more than this multiple of its steps, the critic is
trusted. In a compiled program a step of evaluation takes about a hundredth of the time of a training step."""


def select_candidates(run: RunState, progress: Progress | None = None) -> Lanes:
    """Return the lanes with the best candidate, or mixture of candidates, of each."""
    agent, lanes = run.agents[0], run.lanes
    if not isinstance(agent, Population):
        return lanes
    if agent.floor is not None:
        return with_weights(lanes, weights_above_floors(run, [agent.floor.least], progress)[0])
    candidates, wanted = agent.population()
    episodes = _held_out(run, candidates, wanted, blocks_of_selection(candidates))
    preferred = _preferred(lanes)
    if not episodes:
        return with_weights(lanes, np.eye(candidates)[preferred])
    risks = [one.risk for one in run.agents for _ in range(run.seeds)]
    play = _player(run, candidates, episodes, blocks_of_selection(candidates), progress)
    best, returns = eliminate(risks, candidates, preferred, play)
    chosen = zip(risks, returns, best.tolist(), strict=True)
    return with_weights(lanes, np.stack([best_mixture(*one) for one in chosen]))


def weights_above_floors(
    run: RunState, floors: Sequence[float], progress: Progress | None = None
) -> list[Float[np.ndarray, "L M"]]:
    """Return for each floor the weights of the best draw that reaches it; the candidates play once for all floors."""
    agent = run.agents[0]
    assert isinstance(agent, Population)
    candidates, wanted = agent.population()
    episodes = _held_out(run, candidates, wanted, candidates)
    if not episodes:
        served = lambda floor: run.lanes if floor == agent.floor.least else serve(run, [], floor)[1]
        return [np.eye(candidates)[_preferred(served(floor))] for floor in floors]
    play, measure = _player(run, candidates, episodes, candidates, progress), agent.floor.measure
    risks = [one.risk for one in run.agents for _ in range(run.seeds)]
    returns = np.stack([play(np.full(len(risks), candidate), HELD_OUT) for candidate in range(candidates)], axis=1)
    of_lanes = lambda floor: [best_above_floor(*lane, measure, floor) for lane in zip(risks, returns, strict=True)]
    return [np.stack(of_lanes(floor)) for floor in floors]


def _held_out(run: RunState, candidates: int, wanted: int | None, blocks: int) -> int:
    """Return the number of held-out episodes in a block; 0 where nothing is compared."""
    playable = not isinstance(run.environments[0], LoggedEnvironment)  # on data alone, the critic is trusted
    return episodes_of(run, blocks, wanted) if playable and candidates > 1 else 0


def _preferred(lanes: Lanes) -> Int[np.ndarray, " L"]:
    """Return the candidate of every lane that its networks think best."""
    return np.asarray(eqx.filter_vmap(lambda agent, state: agent.preferred(state))(lanes.agent, lanes.agent_state))


def _player(run: RunState, candidates: int, episodes: int, blocks: int, progress: Progress | None) -> Player:
    """Return the function that plays a block of episodes with one candidate in every lane."""
    played = itertools.count(1)

    def play(candidate: Int[np.ndarray, " L"], seed: int) -> Float[np.ndarray, "L N"]:
        lanes = with_weights(run.lanes, np.eye(candidates)[candidate])
        returns = sample_returns(dataclasses.replace(run, lanes=lanes), episodes, seed)[1]
        if progress is not None:
            progress(next(played), blocks)
        return returns

    return play


def episodes_of(run: RunState, blocks: int, wanted: int | None) -> int:
    """Return the number of episodes in each of all blocks: `wanted`, by default a fraction of the training steps."""
    if wanted is not None:
        return wanted
    length = run.spec.max_episode_steps or 1_000
    share = SHARE_ON_HOST if run.sources else SHARE
    allowed = min(MOST, int(share * run.steps / (blocks * length)))
    if allowed >= FEWEST:
        return allowed
    small = bool(run.sources) or FEWEST * blocks * length > MOST_SHARE * run.steps
    return 0 if small else FEWEST


def with_weights(lanes: Lanes, weights: Float[np.ndarray, "L M"]) -> Lanes:
    """Return lanes whose episodes start with these probabilities of the candidates."""
    state = _set_weights(lanes.agent, lanes.agent_state, jax.device_put(weights.astype(np.float32)))
    return eqx.tree_at(lambda s: s.agent_state, lanes, state)


@eqx.filter_jit
def _set_weights(agent: Any, state: Any, weights: Array) -> Any:
    return eqx.filter_vmap(lambda agent, state, weights: agent.with_weights(state, weights))(agent, state, weights)


def serve(
    run: RunState, risks: Sequence[RiskMeasure], floor: float | None = None, setting: int = 0
) -> tuple[list[Agent], Lanes]:
    """Return agents and lanes for other measures than the trained one, or another floor: a setting for each measure.

    Every measure is served by the lanes of one setting; seeds stay apart.
    """
    trained = run.agents[setting]
    if floor is not None:
        own = trained.floor if isinstance(trained, Population) else None
        if own is None:
            raise RiskpathError('this run was trained without a floor: give its agent subject_to={"cvar:0.1": 50.0}')
        trained = dataclasses.replace(trained, subject_to={own.measure: floor})
    for risk in risks:
        if not can_serve(trained, risk):
            raise RiskpathError(
                f"this run was trained for {trained.risk} and cannot serve {risk}: "
                "rp.Adaptive trained for a CVaR serves all its levels; run.evaluate().risk(…) measures this policy"
            )
    is_risk = lambda x: isinstance(x, RiskMeasure)
    agents = [eqx.tree_at(lambda a: a.risk, trained, risk, is_leaf=is_risk) for risk in risks or [trained.risk]]
    lanes = run.lanes
    parts = (lanes.agent_state, lanes.env, lanes.keys, lanes.recent)
    state, env, keys, recent = _repeat(parts, setting * run.seeds, run.seeds, len(agents))
    agent = stack(agents, run.seeds, is_swept)
    parts = (agent, env, _refresh(agent, state, lanes.clock), keys, recent)
    return agents, eqx.tree_at(lambda s: (s.agent, s.env, s.agent_state, s.keys, s.recent), lanes, parts)


@eqx.filter_jit
def _repeat(tree: Any, first: int, seeds: int, times: int) -> Any:
    """Return the lanes of one setting several times."""
    lanes = slice(first, first + seeds)
    return jax.tree.map(lambda x: jnp.tile(x[lanes], (times, *[1] * (x.ndim - 1))) if eqx.is_array(x) else x, tree)


@eqx.filter_jit
def _refresh(agent: Any, state: Any, clock: Clock) -> Any:
    if not isinstance(agent, Refreshes):
        return state
    return eqx.filter_vmap(lambda agent, state: agent.refresh(state, clock))(agent, state)
