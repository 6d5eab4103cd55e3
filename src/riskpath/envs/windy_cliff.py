"""A walk along a cliff in the wind: the short way costs when the wind blows you over the edge, the long way takes time.

Cells are (x, y) with the cliff in row y = 0. The walk leads from (0, 0) to (width − 1, 0). With some probability the
wind replaces a move by a random one of the four; a wall blocks a move. A step that ends on the cliff, which is row 0
with x > 0, costs 1, also if a wall has blocked it; the goal pays 10 and ends the episode. In the last step before the
time limit only the goal counts. Published as the windy cliff of QR-SRM with a limit of 50 steps.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem, explored, scaled
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share

MOVES = {"up": (0, 1), "right": (1, 0), "down": (0, -1), "left": (-1, 0)}
"""The actions and their directions. "Up" leads away from the cliff and is first: it breaks ties of per-step methods."""


@register
class Place(NamedTuple):
    """A state of the walk."""

    x: int
    y: int
    step: int

    def __str__(self) -> str:
        return f"({self.x},{self.y}) after {self.step} steps"


class WindyCliff(FiniteProblem):
    """Walk along a cliff while the wind replaces half of the moves."""

    width: int = 8
    """The number of columns."""
    height: int = 4
    """The number of rows, the cliff included."""
    horizon: int = 20
    """The largest number of steps."""
    p_wind: float = 0.5
    """The probability that the wind replaces a move by a random one of the four."""
    cliff: float = -1.0
    """The reward of a step that ends on the cliff."""
    goal: float = 10.0
    """The reward of reaching the goal."""

    def __check_init__(self):
        require_counts(2, **fields(self, "width", "height"))
        require_counts(horizon=self.horizon)
        require_share(p_wind=self.p_wind)
        require_finite(**fields(self, "cliff", "goal"))

    def move(self, place: Place, direction: str) -> Place:
        """Return where a move leads to without wind."""
        right, up = MOVES[direction]
        x, y = min(max(place.x + right, 0), self.width - 1), min(max(place.y + up, 0), self.height - 1)
        return Place(x, y, place.step + 1)

    def reward(self, place: Place) -> float:
        """Return the reward of a step that ends here."""
        if place[:2] == (self.width - 1, 0):
            return self.goal
        return self.cliff if place.y == 0 and place.x > 0 and place.step < self.horizon else 0.0

    def features(self, place: Place) -> tuple[float, ...]:
        """Return the cell and the step, each from −1 to 1."""
        return scaled(place.x, self.width - 1), scaled(place.y, self.height - 1), scaled(place.step, self.horizon)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("WindyCliff", 2 * self.width * self.height * self.horizon)
        move, reward, goal, horizon = self.move, self.reward, (self.width - 1, 0), self.horizon  # Equinox binds slowly
        share, calm = self.p_wind / len(MOVES), 1 - self.p_wind

        def options(place: Place) -> dict[str, list[tuple[float, float, Place]]]:
            if place[:2] == goal or place.step == horizon:
                return {}
            ends = {direction: move(place, direction) for direction in MOVES}
            paid = [(direction, reward(end), end) for direction, end in ends.items()]
            return {
                action: [(share + calm * (direction == action), gained, end) for direction, gained, end in paid]
                for action in MOVES
            }

        return explored("WindyCliff", Place(0, 0, 0), options, self.features, discount)
