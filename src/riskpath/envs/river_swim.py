"""A swim against the current: a small reward is sure at the left bank, a large one is far upstream.

Places are 0, …, n − 1. The action "left" leads one place down, always. "Right" leads one place up with probability p,
back with probability q, else it stays; at the left bank it goes on with probability 0.6, at the right end it stays
there with probability 0.6 and falls back otherwise. "Left" at the left bank pays 5, "right" at the right end 10,000.
The problem is RiverSwim of Strehl and Littman (2008) with an end after some steps.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem, scaled, with_features
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share

AT_END = 0.6
"""The probability to leave the left bank, and to hold the right end."""


@register
class Swimmer(NamedTuple):
    """A state of the swim."""

    place: int
    step: int

    def __str__(self) -> str:
        return f"place {self.place} after {self.step} steps"


class RiverSwim(FiniteProblem):
    """Swim upstream for a large reward, or stay at the bank for a small one."""

    places: int = 6
    """The number of places."""
    steps: int = 20
    """The number of steps of an episode."""
    p_right: float = 0.35
    """The probability that "right" leads upstream."""
    p_back: float = 0.05
    """The probability that "right" leads downstream."""
    small: float = 5.0
    """The reward of "left" at the left bank."""
    large: float = 10_000.0
    """The reward of "right" at the right end."""
    start_place: int = 1
    """The place at the start."""

    def __check_init__(self):
        require_counts(2, places=self.places)
        require_counts(steps=self.steps)
        require_counts(0, start_place=self.start_place)
        require_share(**fields(self, "p_right", "p_back"))
        require_finite(**fields(self, "small", "large"))
        if self.p_right + self.p_back > 1:
            raise RiskpathError(f"p_right and p_back must not exceed 1 together, got {self.p_right} and {self.p_back}")
        if self.start_place >= self.places:
            raise RiskpathError(f"start_place must be less than places {self.places}, got {self.start_place}")

    def features(self, swimmer: Swimmer) -> tuple[float, ...]:
        """Return the place and the step, each from −1 to 1."""
        return scaled(swimmer.place, self.places - 1), scaled(swimmer.step, self.steps)

    def moves(self, place: int) -> list[tuple[float, int]]:
        """Return the probability of every place that "right" leads to."""
        last = self.places - 1
        if place == 0:
            return [(AT_END, 1), (1 - AT_END, 0)]
        if place == last:
            return [(AT_END, last), (1 - AT_END, last - 1)]
        stay = 1 - self.p_right - self.p_back
        return [(p, to) for p, to in ((self.p_right, place + 1), (stay, place), (self.p_back, place - 1)) if p > 0]

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("RiverSwim", 2 * self.steps * self.places)
        moves = [self.moves(place) for place in range(self.places)]
        outcomes = {}
        for step in range(self.steps):
            for place in range(self.places):
                down = Swimmer(max(place - 1, 0), step + 1)
                outcomes[Swimmer(place, step), "left"] = [(1.0, 0.0 if place else self.small, down)]
                reward = self.large if place == self.places - 1 else 0.0
                up = [(prob, reward, Swimmer(to, step + 1)) for prob, to in moves[place]]
                outcomes[Swimmer(place, step), "right"] = up
        return with_features("RiverSwim", outcomes, Swimmer(self.start_place, 0), self.features, discount)
