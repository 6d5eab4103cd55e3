"""A walk along the diagonal of a grid: every fork offers a sure small reward or a risky large one.

With three forks (the paper's size), rows from top to bottom:

    S B O O
    Y . B O
    O Y . B
    O O Y G

(S start, G goal, B blue, Y yellow, O orange). Moves go right or down; at the border the impossible move becomes the
possible one, so an episode with n forks has exactly 2n steps. Every step costs 2, blue pays 20, yellow pays 100 with
probability 0.75, orange costs 100. No cell is visited twice, so each pays at most once.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import PolicyLike, as_policy
from riskpath.mdp.policy_evaluation import visits
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share


@register
class Cell(NamedTuple):
    """A state of the grid."""

    row: int
    col: int
    colour: str

    def __str__(self) -> str:
        return f"{self.colour} ({self.row},{self.col})"


class RiskyGrid(FiniteProblem):
    """The risky grid, of any size and with any rewards."""

    forks: int = 3
    """The number of choices between blue and yellow."""
    step_reward: float = -2.0
    """The reward of every step."""
    blue: float = 20.0
    """The reward of a blue cell, which is certain."""
    yellow: float = 100.0
    """The reward of a yellow cell, if it pays."""
    p_yellow: float = 0.75
    """The probability that a yellow cell pays."""
    orange: float = -100.0
    """The reward of an orange cell."""
    bonus: float = 0.0
    """The reward of the goal; 0.85 is MiniGrid's reward for success, which the published figures contain."""

    def __check_init__(self):
        require_counts(forks=self.forks)
        require_share(p_yellow=self.p_yellow)
        require_finite(**fields(self, "step_reward", "blue", "yellow", "orange", "bonus"))

    def colour(self, row: int, col: int) -> str:
        """Return the colour of a cell."""
        return _colour(row, col, self.forks)

    def cell(self, row: int, col: int) -> Cell:
        """Return the state of a cell."""
        return Cell(row, col, self.colour(row, col))

    def rewards(self, cell: Cell) -> list[tuple[float, float]]:
        """Return (probability, reward) pairs of entering a cell."""
        sure = {"blue": self.blue, "orange": self.orange, "goal": self.bonus}
        if cell.colour == "yellow":
            return [(self.p_yellow, self.step_reward + self.yellow), (1 - self.p_yellow, self.step_reward)]
        return [(1.0, self.step_reward + sure.get(cell.colour, 0.0))]

    def move(self, cell: Cell, action: str) -> Cell:
        """Return the cell that an action leads to."""
        right = cell.row == self.forks or (action == "right" and cell.col < self.forks)
        return self.cell(cell.row, cell.col + 1) if right else self.cell(cell.row + 1, cell.col)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        forks, rewards = self.forks, self.rewards  # Equinox binds slowly
        require_table("RiskyGrid", 2 * (forks + 1.0) ** 2)
        size = range(forks + 1)
        goal = self.cell(forks, forks)
        cells = {(row, col): Cell(row, col, _colour(row, col, forks)) for row in size for col in size}
        enters = {place: [(p, reward, cell) for p, reward in rewards(cell)] for place, cell in cells.items()}
        outcomes = {}
        for (row, col), cell in cells.items():
            if cell != goal:
                right, down = (row, min(col + 1, forks)), (min(row + 1, forks), col)
                outcomes[cell, "right"] = enters[right if col < forks else down]
                outcomes[cell, "down"] = enters[down if row < forks else right]
        return FiniteMDP.from_outcomes(
            outcomes, start=self.cell(0, 0), discount=discount, terminal=[goal], name="RiskyGrid"
        )

    def path(self, policy: PolicyLike) -> str:
        """Return the colours that a policy visits, fork by fork: "YYB", or "Y(B|Y)B" where it depends on rewards."""
        mdp = self.mdp()
        letters: dict[int, dict[str, None]] = {}
        for visit in visits(mdp, as_policy(policy)):
            if visit.time % 2 == 0:
                colour = self.move(visit.state, visit.action).colour  # pyright: ignore[reportArgumentType]
                letters.setdefault(visit.time, {})[colour[0].upper()] = None
        return "".join(fork if len(fork) == 1 else f"({fork})" for fork in map("|".join, letters.values()))


def _colour(row: int, col: int, forks: int) -> str:
    if row == col:
        return "start" if row == 0 else "goal" if row == forks else "free"
    return {1: "blue", -1: "yellow"}.get(col - row, "orange")
