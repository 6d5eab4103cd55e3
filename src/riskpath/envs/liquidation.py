"""Sell a large position in a few steps: fast sales depress the price, slow sales carry the risk of its moves.

The price relative to the first one is S = tick · k − permanent impact · (lots sold before), where k counts the up-moves
minus the down-moves; one move follows every step. A sale of n lots earns n · (S − temporary impact · n). The lots
left after the last step are sold at once after its move, for left · (S − final impact · left). This is the model of
Almgren and Chriss on a tree of prices.
"""

from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem, explored, scaled
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share


@register
class Position(NamedTuple):
    """A state of the sale."""

    left: int
    level: int
    """k, the up-moves minus the down-moves of the price."""
    step: int

    def __str__(self) -> str:
        return f"{self.left} left at level {self.level:+d} after {self.step} steps"


class Liquidation(FiniteProblem):
    """Sell ten lots in five steps while the price moves at random."""

    lots: int = 10
    """The lots to sell."""
    steps: int = 5
    """The number of steps."""
    max_sale: int = 4
    """The most lots sold in one step."""
    tick: float = 1.0
    """The size of a move of the price."""
    p_up: float = 0.5
    """The probability of an up-move."""
    permanent_impact: float = 0.1
    """The permanent fall of the price for every lot sold."""
    temporary_impact: float = 0.25
    """The fall of the price of a step for every lot sold in it."""
    final_impact: float = 0.75
    """The temporary impact of the final sale of the remaining lots."""

    def __check_init__(self):
        require_counts(**fields(self, "lots", "steps", "max_sale"))
        require_share(p_up=self.p_up)
        require_finite(**fields(self, "tick", "permanent_impact", "temporary_impact", "final_impact"))

    def proceeds(self, position: Position, sale: int, level: int) -> float:
        """Return the reward of a sale after which the price moves to a level."""
        left, impact = position.left - sale, self.permanent_impact
        price = self.tick * position.level - impact * (self.lots - position.left)
        earned = sale * (price - self.temporary_impact * sale)
        if position.step + 1 < self.steps:
            return earned
        return earned + left * (self.tick * level - impact * (self.lots - left) - self.final_impact * left)

    def features(self, position: Position) -> tuple[float, ...]:
        """Return the lots left, the level of the price and the step, each from −1 to 1."""
        step = scaled(position.step, self.steps)
        return scaled(position.left, self.lots), position.level / self.steps, step

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("Liquidation", self.lots * min(self.max_sale + 1, self.lots + 1) * self.steps**2 / 2)
        proceeds, moves = self.proceeds, ((self.p_up, 1), (1 - self.p_up, -1))  # Equinox binds slowly

        def options(position: Position) -> dict[int, list[tuple[float, float, Position]]]:
            left, level, step = position
            return {
                sale: [
                    (prob, proceeds(position, sale, level + move), Position(left - sale, level + move, step + 1))
                    for prob, move in moves
                ]
                for sale in (range(min(self.max_sale, left) + 1) if step < self.steps else ())
            }

        return explored("Liquidation", Position(self.lots, 0, 0), options, self.features, discount)
