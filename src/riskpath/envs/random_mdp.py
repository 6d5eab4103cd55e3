"""Random problems of any size, for tests and benchmarks: layers of states, each action leads to the next layer.

Rewards are small whole numbers, so that different paths have equal returns. Probabilities are multiples of 1/16. The
same fields always give the same problem.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from riskpath.envs.finite import FiniteProblem, scaled, with_features
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts

OUTCOMES = 3
"""The number of outcomes of an action; equal ones are merged."""
LARGEST_REWARD = 6
"""Rewards are whole numbers from −6 to 6."""
PARTS = 16
"""Probabilities are multiples of 1/16."""


@register
class Node(NamedTuple):
    """A state of a random problem."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"node {self.number} of layer {self.layer}"


class RandomMDP(FiniteProblem):
    """A random problem of layers of states, the same for the same fields."""

    seed: int = 0
    """The seed of the problem."""
    depth: int = 4
    """The number of steps of an episode."""
    width: int = 3
    """The number of states in a layer; the first layer has one."""
    actions: int = 2
    """The number of actions of every state."""
    stochastic: bool = True
    """Whether the next state is random; if not, only rewards are."""

    def __check_init__(self):
        require_counts(0, seed=self.seed)
        require_counts(**fields(self, "depth", "width", "actions"))
        if not isinstance(self.stochastic, bool):
            raise RiskpathError(f"stochastic must be True or False, got {self.stochastic!r}")

    def features(self, node: Node) -> tuple[float, ...]:
        """Return which state of its layer a node is, one entry for each, and the layer from −1 to 1."""
        return *(float(node.number == index) for index in range(self.width)), scaled(node.layer, self.depth)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("RandomMDP", self.depth * self.width * self.actions)
        rng = np.random.default_rng(self.seed)
        layers = [1, *[self.width] * (self.depth - 1), 1]
        outcomes = {}
        for layer in range(self.depth):
            for index, action in product(range(layers[layer]), range(self.actions)):
                cuts = np.sort(rng.choice(np.arange(1, PARTS), OUTCOMES - 1, replace=False))
                probs = np.diff(cuts, prepend=0, append=PARTS) / PARTS
                rewards = rng.integers(-LARGEST_REWARD, LARGEST_REWARD + 1, OUTCOMES)
                nexts = rng.integers(0, layers[layer + 1], OUTCOMES if self.stochastic else 1)
                outcomes[Node(layer, index), action] = [
                    (float(prob), float(reward), Node(layer + 1, int(following)))
                    for prob, reward, following in zip(probs, rewards, np.resize(nexts, OUTCOMES), strict=True)
                ]
        return with_features("RandomMDP", outcomes, Node(0, 0), self.features, discount)
