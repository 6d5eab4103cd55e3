"""A grid walked along its diagonal: at every fork a sure small reward or a risky large one.

With three forks (the paper's size), rows from top to bottom:

    S B O O
    Y . B O
    O Y . B
    O O Y G

Moves go right or down; at the border the impossible move becomes the possible one, so an episode with n forks
has exactly 2n steps. Every step costs 2, blue pays 20, yellow pays 100 with probability 0.75, orange costs 100.
A cell is never visited twice, so "only on the first visit" holds by itself.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import PolicyLike, as_policy
from riskpath.mdp.policy_evaluation import visits
from riskpath.registry import register
from riskpath.validation import require_counts


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
    """How many times the path chooses between blue and yellow."""
    step_reward: float = -2.0
    """The reward of every step."""
    blue: float = 20.0
    """The sure reward of a blue cell."""
    yellow: float = 100.0
    """What a yellow cell pays, if it pays."""
    p_yellow: float = 0.75
    """The probability that it pays."""
    orange: float = -100.0
    """The reward of an orange cell."""
    bonus: float = 0.0
    """Paid at the goal; 0.85 is what MiniGrid's success reward adds in the published figures."""

    def __check_init__(self):
        require_counts(forks=self.forks)
        if not 0 <= self.p_yellow <= 1:
            raise RiskpathError(f"p_yellow must be in [0, 1], got {self.p_yellow}")

    def colour(self, row: int, col: int) -> str:
        """The colour of a cell."""
        if row == col:
            return "start" if row == 0 else "goal" if row == self.forks else "free"
        return {1: "blue", -1: "yellow"}.get(col - row, "orange")

    def cell(self, row: int, col: int) -> Cell:
        """The state at a place."""
        return Cell(row, col, self.colour(row, col))

    def rewards(self, cell: Cell) -> list[tuple[float, float]]:
        """(probability, reward) pairs of entering a cell."""
        sure = {"blue": self.blue, "orange": self.orange, "goal": self.bonus}
        if cell.colour == "yellow":
            return [(self.p_yellow, self.step_reward + self.yellow), (1 - self.p_yellow, self.step_reward)]
        return [(1.0, self.step_reward + sure.get(cell.colour, 0.0))]

    def move(self, cell: Cell, action: str) -> Cell:
        """Where an action leads."""
        right = cell.row == self.forks or (action == "right" and cell.col < self.forks)
        return self.cell(cell.row, cell.col + 1) if right else self.cell(cell.row + 1, cell.col)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        """The problem for the exact solvers."""
        size = range(self.forks + 1)
        goal = self.cell(self.forks, self.forks)
        outcomes = {}
        for cell in (self.cell(row, col) for row in size for col in size):
            if cell != goal:
                for action in ("right", "down"):
                    following = self.move(cell, action)
                    outcomes[cell, action] = [(p, reward, following) for p, reward in self.rewards(following)]
        return FiniteMDP.from_outcomes(
            outcomes, start=self.cell(0, 0), discount=discount, terminal=[goal], name="RiskyGrid"
        )

    def path(self, policy: PolicyLike) -> str:
        """The colours a policy walks over, fork by fork, as in "YYB"; alternatives that depend on luck as "Y|B"."""
        mdp = self.mdp()
        letters: dict[int, dict[str, None]] = {}
        for visit in visits(mdp, as_policy(policy)):
            if visit.time % 2 == 0:
                colour = self.move(visit.state, visit.action).colour  # pyright: ignore[reportArgumentType]
                letters.setdefault(visit.time, {})[colour[0].upper()] = None
        return "".join(fork if len(fork) == 1 else f"({fork})" for fork in map("|".join, letters.values()))
