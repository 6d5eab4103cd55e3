"""A vehicle on a grid of roads: fast roads are usually quick and sometimes jammed, slow roads are predictable.

From crossing (0, 0) to the opposite corner, which pays 80 and ends the episode. Driving along a road costs one of three
times, drawn anew each time: the first with probability 0.4, the others with 0.3 each. Map and times are those of the
public code of Return Capping (Mead et al., 2025), without its division of rewards by 256.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem
from riskpath.mdp.model import FiniteMDP
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite

TIMES = ((1.0, 2.0, 18.0), (2.0, 4.0, 13.0), (4.0, 5.0, 11.0), (7.0, 7.0, 8.0))
"""The times of each kind of road: motorway, main road, side street, lane."""
CHANCES = (0.4, 0.3, 0.3)
"""How likely each of the three times is."""
EAST = ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3))
"""The kind of the road from (x, y) to (x + 1, y), by row y."""
NORTH = ((3, 0, 0, 0, 0), (3, 2, 2, 2, 1), (3, 2, 2, 2, 2))
"""The kind of the road from (x, y) to (x, y + 1)."""
MOVES = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
"""The actions and their directions."""
CORNER = (len(EAST[0]), len(NORTH))
"""The crossing where the journey ends."""


@register
class Crossing(NamedTuple):
    """A state of the journey."""

    x: int
    y: int

    def __str__(self) -> str:
        return f"({self.x},{self.y})"


def road(one: Crossing, other: Crossing) -> int:
    """Return the kind of the road between two neighbouring crossings."""
    x, y = min(one.x, other.x), min(one.y, other.y)
    return NORTH[y][x] if one.x == other.x else EAST[y][x]


class AutonomousVehicle(FiniteProblem):
    """Choose between quick roads that may be jammed and slow, certain ones; observes the crossing."""

    arrival: float = 80.0
    """The reward of the arrival."""
    max_episode_steps: int = 32
    """The number of roads after which an episode is cut off."""

    def __check_init__(self):
        require_finite(arrival=self.arrival)
        require_counts(sum(CORNER), **fields(self, "max_episode_steps"))

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        arrival, horizon = self.arrival, self.max_episode_steps
        places = [Crossing(x, y) for y in range(CORNER[1] + 1) for x in range(CORNER[0] + 1)]
        outcomes = {}
        for place in places[:-1]:
            for action, (east, north) in MOVES.items():
                following = Crossing(place.x + east, place.y + north)
                if following in places:
                    paid = arrival if following == CORNER else 0.0
                    times = TIMES[road(place, following)]
                    outcomes[place, action] = [
                        (chance, paid - time, following) for chance, time in zip(CHANCES, times, strict=True)
                    ]
        return FiniteMDP.from_outcomes(
            outcomes, Crossing(0, 0), discount, horizon, terminal=[places[-1]], name="AutonomousVehicle"
        )
