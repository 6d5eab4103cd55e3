"""The smallest problem on which per-step risk fails: two steps, each either a risky bet or a sure small loss."""

from riskpath.envs.finite import FiniteProblem
from riskpath.mdp.model import FiniteMDP
from riskpath.validation import fields, require_finite, require_share


class ThreeState(FiniteProblem):
    """s0 → s1 → end; at both states: risky (+100 w.p. 0.9, else −10) or safe (−5)."""

    win: float = 100.0
    """The reward of a bet that is won."""
    lose: float = -10.0
    """The reward of a bet that is lost."""
    p_win: float = 0.9
    """The probability to win."""
    safe: float = -5.0
    """The reward of not betting."""

    def __check_init__(self):
        require_finite(**fields(self, "win", "lose", "safe"))
        require_share(p_win=self.p_win)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        risky = [(self.p_win, self.win), (1 - self.p_win, self.lose)]
        outcomes = {}
        for state, next_state in (("s0", "s1"), ("s1", "end")):
            outcomes[state, "risky"] = [(prob, reward, next_state) for prob, reward in risky]
            outcomes[state, "safe"] = [(1.0, self.safe, next_state)]
        return FiniteMDP.from_outcomes(outcomes, start="s0", discount=discount, terminal=["end"], name="ThreeState")
