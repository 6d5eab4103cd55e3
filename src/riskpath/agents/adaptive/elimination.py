"""Select the best of several policies by held-out episodes, played in rounds (successive elimination).

Every round plays the same total number of episodes and keeps the best third, until two candidates are left: most
episodes are spent on candidates that are hard to tell apart. All of them meet the same randomness. Candidates that play
alike have equal values, and one of them stays. The candidate that the networks prefer always stays, and is played
unless the other one is clearly better.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from riskpath.agents.adaptive.mixing import advantage
from riskpath.risk.measures import RiskMeasure

HELD_OUT = 1_000_003
"""Seed of the first held-out episodes; others have the seeds after it."""
ERRORS = 0.75
"""By how many standard errors another candidate must be better than the preferred one."""


def rounds(candidates: int) -> Iterator[tuple[int, int]]:
    """Yield, for every round, the number of candidates left and the number of blocks of episodes each of them plays."""
    left = candidates
    while left > 1:
        yield left, candidates // left
        left = max(2, left // 3) if left > 2 else 1


def blocks_of_selection(candidates: int) -> int:
    """Return the number of blocks of episodes in all rounds together."""
    return sum(left * blocks for left, blocks in rounds(candidates))


def eliminate(
    risks: Sequence[RiskMeasure],
    candidates: int,
    preferred: Int[np.ndarray, " L"],
    play: Callable[[Int[np.ndarray, " L"], int], Float[np.ndarray, "L N"]],
) -> tuple[Int[np.ndarray, " L"], Float[np.ndarray, "L M N"]]:
    """Return the best candidate of each lane, and the returns of all candidates in the first round.

    The preferred candidate is played unless another one is better. `play` returns a block of returns for each lane,
    given the candidate that it plays and a seed.
    """
    left, seed, first = np.tile(np.arange(candidates), (len(risks), 1)), HELD_OUT, None
    returns = np.zeros((*left.shape, 0))
    for _, blocks in rounds(candidates):
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
    """Return the values that rank the candidates: ∞ for the one that stays, −∞ for a repeated value."""
    repeated = [value in values[:candidate] or value == values[stays] for candidate, value in enumerate(values)]
    ranked = np.where(repeated, -np.inf, values)
    ranked[stays] = np.inf
    return ranked
