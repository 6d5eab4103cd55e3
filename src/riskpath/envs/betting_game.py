"""A game of repeated bets that are likely to be won: choose how much of the money to bet in each round.

With the money m, action a of 0, …, n bets min(m · a/n, M − m). The bet is won with probability p, otherwise lost; the
reward is the gain or the loss. The episode ends without money, at the most money M, or after the last round. The return
is therefore the final money minus the first. Bets and probabilities are those of the public code of Return Capping.
"""

import math
from typing import NamedTuple

from riskpath.envs.finite import FiniteProblem, explored, scaled
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share


@register
class Purse(NamedTuple):
    """A state of the game."""

    money: float
    round: int

    def __str__(self) -> str:
        return f"{self.money:g} after {self.round} rounds"


class BettingGame(FiniteProblem):
    """Bet a fraction of the money in every round; a bet is won with probability 0.88."""

    start_money: float = 16.0
    """The money at the start."""
    rounds: int = 6
    """The number of rounds."""
    p_win: float = 0.88
    """The probability to win a bet."""
    bets: int = 8
    """The number of parts into which the money is divided: action a bets a of them."""
    max_money: float = 256.0
    """The most money; reaching it wins the game."""

    def __check_init__(self):
        require_counts(**fields(self, "rounds", "bets"))
        require_share(p_win=self.p_win)
        require_finite(**fields(self, "start_money", "max_money"))
        if not 0 < self.start_money < self.max_money:
            raise RiskpathError(
                f"start_money must be more than 0 and less than max_money {self.max_money:g}, got {self.start_money:g}"
            )

    def bet(self, money: float, action: int) -> float:
        """Return the bet of an action."""
        return min(money * action / self.bets, self.max_money - money)

    def is_over(self, purse: Purse) -> bool:
        """Tell whether the game ends in a state."""
        return purse.round == self.rounds or not 0 < purse.money < self.max_money

    def features(self, purse: Purse) -> tuple[float, ...]:
        """Return the money, linear and logarithmic, and the round; each from −1 to 1."""
        logarithm = scaled(math.log1p(purse.money), math.log1p(self.max_money))
        return scaled(purse.money, self.max_money), logarithm, scaled(purse.round, self.rounds)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("BettingGame", self.rounds * (self.bets + 1))  # at least one state a round
        bet_of, is_over, features = self.bet, self.is_over, self.features  # Equinox binds slowly
        p_win, actions = self.p_win, range(self.bets + 1)

        def options(purse: Purse) -> dict[int, list[tuple[float, float, Purse]]]:
            money, played = purse.money, purse.round + 1
            bets = {} if is_over(purse) else {action: bet_of(money, action) for action in actions}
            return {
                action: [(p_win, bet, Purse(money + bet, played)), (1 - p_win, -bet, Purse(money - bet, played))]
                for action, bet in bets.items()
            }

        return explored("BettingGame", Purse(float(self.start_money), 0), options, features, discount)
