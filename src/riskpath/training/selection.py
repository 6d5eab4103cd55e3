"""After training: choose among the members of each lane's population, and serve other measures than the trained one.

An agent whose state holds several policies (`Population`) plays each of them on held-out episodes. The best third
stays and plays as many episodes as all of them before, and so on until two are left: most episodes are spent on members
that are hard to tell apart. All members meet the same randomness, so members that play alike where it counts have equal
values, and one of them stays. The member that the critic prefers always stays, and is played unless the other one is
clearly better. Training itself does not depend on the choice.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.agents.abilities import Population, Refreshes, can_serve
from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.evaluation.mixing import advantage, best_mixture
from riskpath.risk.measures import RiskMeasure
from riskpath.training.lanes import Lanes, is_swept, stack
from riskpath.training.logged import LoggedEnvironment

Progress = Callable[[int, int], None]
"""Called with what is done and with all."""
HELD_OUT = 1_000_003
"""Seed of the first held-out episodes; others have the seeds after it."""
SHARE, SHARE_ON_HOST = 2.0, 0.25
"""Environment steps of the selection relative to those of training, at most: in an environment that is part of the
program, where playing takes a fraction of the time of learning, and in one that the host steps."""
ERRORS = 0.75
"""Another member must be better than the preferred one by this many standard errors."""
FEWEST, MOST = 200, 10_000
"""Episodes of each member in the first round. If the host may not play the fewest, the critic is trusted."""
MOST_SHARE = 20.0
"""Nor does a small training wait for a selection: if the fewest episodes have more than this many times its steps, the
critic is trusted. In a compiled program a step that is played takes about a hundredth of one that is learned from."""


def rounds(members: int) -> Iterator[tuple[int, int]]:
    """Yield for every round how many members are left, and how many blocks of episodes each of them plays."""
    left = members
    while left > 1:
        yield left, members // left
        left = max(2, left // 3) if left > 2 else 1


def blocks_of_selection(members: int) -> int:
    """Return how many blocks of episodes are played in all rounds."""
    return sum(left * blocks for left, blocks in rounds(members))


def select_members(run: Any, progress: Progress | None = None) -> Lanes:
    """Return the lanes with the best member, or mixture of members, of each.

    Args:
        run: The run.
        progress: Called with the number of blocks of episodes that were played and of all.
    """
    agent, lanes = run.agents[0], run.lanes
    if not isinstance(agent, Population):
        return lanes
    members, wanted = agent.population()
    playable = not isinstance(run.environments[0], LoggedEnvironment)
    episodes = episodes_of(run, members, wanted) if playable else 0  # on data alone, the critic is trusted
    preferred = np.asarray(eqx.filter_vmap(lambda agent, state: agent.preferred(state))(lanes.agent, lanes.agent_state))
    if not episodes:
        return _play(lanes, members, preferred)
    risks = [agent.risk for agent in run.agents for _ in range(run.seeds)]
    played, blocks = itertools.count(1), blocks_of_selection(members)

    def play(member: Int[np.ndarray, " L"], seed: int) -> Float[np.ndarray, "L N"]:
        returns = run.sample_returns(_play(lanes, members, member), episodes, seed)[1]
        if progress is not None:
            progress(next(played), blocks)
        return returns

    best, returns = eliminate(risks, members, preferred, play)
    chosen = zip(risks, returns, best.tolist(), strict=True)
    return _with_weights(lanes, np.stack([best_mixture(*one) for one in chosen]))


def eliminate(
    risks: Sequence[RiskMeasure],
    members: int,
    preferred: Int[np.ndarray, " L"],
    play: Callable[[Int[np.ndarray, " L"], int], Float[np.ndarray, "L N"]],
) -> tuple[Int[np.ndarray, " L"], Float[np.ndarray, "L M N"]]:
    """Return the best member of each lane, and the returns of all members in the first round.

    Args:
        risks: The measure of each lane.
        members: How many members each lane has.
        preferred: The member of each lane that is played unless another one is better.
        play: Returns a block of returns for each lane, given the member that it plays and a seed.
    """
    left, seed, first = np.tile(np.arange(members), (len(risks), 1)), HELD_OUT, None
    returns = np.zeros((*left.shape, 0))
    for _, blocks in rounds(members):
        for _ in range(blocks):
            returns = np.concatenate([returns, np.stack([play(column, seed) for column in left.T], axis=1)], axis=2)
            seed += 1
        first = returns if first is None else first
        values = np.array([[risk.value(one) for one in returns[lane]] for lane, risk in enumerate(risks)])
        stays = np.argmax(left == preferred[:, None], axis=1)
        values = np.stack([_once(*lane) for lane in zip(values, stays.tolist(), strict=True)])
        better = np.argsort(-values, axis=1, kind="stable")[:, : max(2, left.shape[1] // 3)]
        left, returns = np.take_along_axis(left, better, 1), np.take_along_axis(returns, better[..., None], 1)
    assert first is not None
    gains = np.array([advantage(risk, *returns[lane, 1::-1]) for lane, risk in enumerate(risks)])
    return np.where(gains[:, 0] > ERRORS * gains[:, 1], left[:, 1], left[:, 0]), first


def _once(values: Float[np.ndarray, " M"], stays: int) -> Float[np.ndarray, " M"]:
    """Return the values by which members are ranked: ∞ for the one that stays, −∞ for repetitions of another value."""
    repeated = [value in values[:member] or value == values[stays] for member, value in enumerate(values)]
    ranked = np.where(repeated, -np.inf, values)
    ranked[stays] = np.inf
    return ranked


def episodes_of(run: Any, members: int, wanted: int | None) -> int:
    """Return how many episodes a block has: as many as wanted, by default as many as the share of training allows."""
    if wanted is not None:
        return wanted
    length = run.spec.max_episode_steps or 1_000
    share, blocks = SHARE_ON_HOST if run.sources else SHARE, blocks_of_selection(members)
    allowed = min(MOST, int(share * run.steps / (blocks * length)))
    if allowed >= FEWEST:
        return allowed
    small = bool(run.sources) or FEWEST * blocks * length > MOST_SHARE * run.steps
    return 0 if small else FEWEST


def _play(lanes: Lanes, members: int, member: Int[np.ndarray, " L"]) -> Lanes:
    """Return lanes that play one member each."""
    return _with_weights(lanes, np.eye(members)[member])


def _with_weights(lanes: Lanes, weights: Float[np.ndarray, "L M"]) -> Lanes:
    state = _set_weights(lanes.agent, lanes.agent_state, jax.device_put(weights.astype(np.float32)))
    return eqx.tree_at(lambda s: s.agent_state, lanes, state)


@eqx.filter_jit
def _set_weights(agent: Any, state: Any, weights: Array) -> Any:
    return eqx.filter_vmap(lambda agent, state, weights: agent.with_members(state, weights))(agent, state, weights)


def serve(run: Any, risks: Sequence[RiskMeasure]) -> tuple[list[Agent], Lanes]:
    """Return agents and lanes for other measures than the trained one: a setting for each measure.

    Every measure is served by the lanes of the first setting; seeds stay apart.
    """
    trained = run.agents[0]
    for risk in risks:
        if not can_serve(trained, risk):
            raise RiskpathError(
                f"this run was trained for {trained.risk} and cannot serve {risk}: "
                "rp.Adaptive trained for a CVaR serves all its levels; run.evaluate().risk(…) measures this policy"
            )
    agents = [eqx.tree_at(lambda a: a.risk, trained, risk, is_leaf=_is_risk) for risk in risks]
    lanes = run.lanes
    parts = (lanes.agent_state, lanes.env, lanes.keys, lanes.recent)
    state, env, keys, recent = _repeat_first(parts, run.seeds, len(risks))
    agent = stack(agents, run.seeds, is_swept)
    parts = (agent, env, _refresh(agent, state), keys, recent)
    return agents, eqx.tree_at(lambda s: (s.agent, s.env, s.agent_state, s.keys, s.recent), lanes, parts)


@eqx.filter_jit
def _repeat_first(tree: Any, seeds: int, times: int) -> Any:
    """Return the lanes of the first setting several times."""
    first = lambda x: jnp.tile(x[:seeds], (times, *[1] * (x.ndim - 1))) if eqx.is_array(x) else x  # noqa: E731
    return jax.tree.map(first, tree)


def _is_risk(x: Any) -> bool:
    return isinstance(x, RiskMeasure)


@eqx.filter_jit
def _refresh(agent: Any, state: Any) -> Any:
    if not isinstance(agent, Refreshes):
        return state
    return eqx.filter_vmap(lambda agent, state: agent.refresh(state))(agent, state)
