"""The objective of an adaptive agent: the measure to maximise, and the context that the agent needs for it.

A risk measure of the whole return is not a sum over steps, so the best action depends on past rewards. A *context* x
holds the information about them that is needed. An objective has a utility u_x of the return to go Z in a context, such
that

    E[u_x(Z)] is maximised by the best policy, and u_x(r + γZ) = k u_x′(Z) + constant,

where x′ is the context after the reward r, and k > 0. So expected utilities obey a Bellman equation on (s, x), and
every method for the mean applies: critics learn E[u_x(Z)]. Where k = γ, as in all objectives but aversions, a policy
gradient takes u_x(r) − u_x(0) as the reward of a step.

Which context an episode starts with is the *plan*. It follows from the networks and holds several candidates, which are
compared on held-out episodes after training.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from riskpath.agents.episodes import Units
from riskpath.types import Key, Transition


class Objective(eqx.Module):
    """What an adaptive agent maximises; each objective defines its own contexts and plans, which are PyTrees."""

    @property
    @abc.abstractmethod
    def context_size(self) -> int:
        """Return the number of features of a context."""

    @property
    @abc.abstractmethod
    def candidates(self) -> int:
        """Return the number of candidates in a plan."""

    @abc.abstractmethod
    def plan(self) -> Any:
        """Return the plan before anything is known."""

    @abc.abstractmethod
    def first(self, plan: Any, candidate: Int[Array, ""]) -> Any:
        """Return the context with which a candidate starts an episode."""

    @abc.abstractmethod
    def preferred(self, plan: Any) -> Int[Array, ""]:
        """Return the candidate that the networks think best."""

    @abc.abstractmethod
    def explore(self, plan: Any, units: Units, draw: Float[Array, ""]) -> Any:
        """Return a context with which a training episode may start, from a uniform draw."""

    @abc.abstractmethod
    def near(self, plan: Any, units: Units, draws: Float[Array, "2"]) -> Any:
        """Return a context near one with which the best policy of some measure starts, from uniform draws."""

    @abc.abstractmethod
    def advance(self, context: Any, reward: Float[Array, "..."], discount: Any) -> Any:
        """Return the context after a reward."""

    @abc.abstractmethod
    def encode(self, context: Any, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context; `expected` is the mean return still to come at its time."""

    @abc.abstractmethod
    def relabel(
        self, step: Transition, count: int, plan: Any, units: Units, discount: Any, *, key: Key
    ) -> tuple[Any, Any]:
        """Return several contexts in which a stored step may have been taken, and those after it."""

    @abc.abstractmethod
    def utility(self, context: Any, returns: Float[Array, "*N"], plan: Any, units: Units) -> Float[Array, "*N"]:
        """Return u_x(Z) of returns to go; both in units."""

    @abc.abstractmethod
    def expected(
        self, context: Any, law: Float[Array, "N *A"], probs: Float[Array, " N"], plan: Any, units: Units
    ) -> Float[Array, "*A"]:
        """Return what is maximised in a context: E[u_x(Z)] of distributions in units, or a function that increases."""

    @abc.abstractmethod
    def error(
        self,
        context: Any,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: Any,
        units: Units,
    ) -> Float[Array, ""]:
        """Return the error of the expected utility of a predicted distribution, given that of a sampled target.

        It is relative to about how much the utility differs between returns. Its square has no bias.
        """

    @abc.abstractmethod
    def estimate(
        self, context: Any, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return β of predicted returns to go; both in units."""

    @abc.abstractmethod
    def refresh(self, plan: Any, root: Any, units: Units, progress: Float[Array, ""]) -> Any:
        """Return the plan that follows from the networks.

        Args:
            plan: The plan before.
            root: Returns, for a context at the start of an episode, the predicted distribution of the return under the
                best action, as equally likely atoms in units, and what is `expected` from each of several starts.
            units: The unit of the networks and the range of returns.
            progress: How far the learning-rate decay has progressed, from 0 to 1.
        """
