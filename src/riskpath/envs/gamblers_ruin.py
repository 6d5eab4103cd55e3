"""The gambler's ruin: bet whole coins in every round, until none are left, the target is reached or rounds are over.

With m coins, action a bets a of 0, …, min(m, target − m) coins. The bet is won with probability p, otherwise lost; the
reward is the gain or the loss, so the return is the final money minus the first.
"""

from riskpath.envs.betting_game import Purse
from riskpath.envs.finite import FiniteProblem, scaled, with_features
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.validation import fields, require_counts, require_share


class GamblersRuin(FiniteProblem):
    """Bet whole coins for a target; a bet is won with probability 0.6."""

    start_money: int = 5
    """The coins at the start."""
    target: int = 10
    """The coins that end the game."""
    rounds: int = 10
    """The number of rounds."""
    p_win: float = 0.6
    """The probability to win a bet."""

    def __check_init__(self):
        require_counts(**fields(self, "start_money", "target", "rounds"))
        require_share(p_win=self.p_win)
        if not self.start_money < self.target:
            raise RiskpathError(f"start_money must be less than the target {self.target}, got {self.start_money}")

    def features(self, purse: Purse) -> tuple[float, ...]:
        """Return the coins and the round, each from −1 to 1."""
        return scaled(purse.money, self.target), scaled(purse.round, self.rounds)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("GamblersRuin", self.rounds * self.target**2 / 4)
        outcomes = {}
        for played in range(self.rounds):
            for money in range(1, self.target):
                for bet in range(min(money, self.target - money) + 1):
                    won, lost = Purse(float(money + bet), played + 1), Purse(float(money - bet), played + 1)
                    chances = [(self.p_win, float(bet), won), (1 - self.p_win, -float(bet), lost)]
                    outcomes[Purse(float(money), played), bet] = chances if bet else [(1.0, 0.0, won)]
        return with_features("GamblersRuin", outcomes, Purse(float(self.start_money), 0), self.features, discount)
