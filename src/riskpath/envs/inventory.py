"""A shop orders goods before it knows the demand: a large stock serves rare large orders, and costs money otherwise.

Each step: order a units, which arrive at once; then the demand d is drawn. Demand beyond what is in stock is lost:

    r = price · min(d, s + a) − unit cost · a − delivery cost · [a > 0] − holding cost · s′,   s′ = max(s + a − d, 0).

Orders that do not fit into the store are not available. Demand and costs are those of an example of MDPs.jl.
"""

from itertools import product
from typing import Any, NamedTuple

import equinox as eqx

from riskpath.envs.finite import FiniteProblem, scaled, with_features
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.memory import require_table
from riskpath.registry import register
from riskpath.validation import fields, require_counts, require_finite, require_share


def _as_tuple(value: Any) -> Any:
    """Return a list, as JSON has it, as a tuple; leave other values as they are."""
    return tuple(value) if isinstance(value, list) else value


@register
class Stock(NamedTuple):
    """A state of the shop."""

    units: int
    step: int

    def __str__(self) -> str:
        return f"{self.units} in stock after {self.step} steps"


class Inventory(FiniteProblem):
    """Order goods for an uncertain demand that is rarely very large."""

    steps: int = 8
    """The number of orders."""
    capacity: int = 20
    """The most units in stock."""
    max_order: int = 10
    """The largest order."""
    start_stock: int = 0
    """The units in stock at the start."""
    demand: tuple[int, ...] = eqx.field(converter=_as_tuple, default=(0, 2, 3, 4, 5, 30))
    """The possible numbers of units that customers want."""
    demand_probs: tuple[float, ...] = eqx.field(converter=_as_tuple, default=(0.1, 0.5, 0.1, 0.1, 0.1, 0.1))
    """The probability of each demand."""
    price: float = 16.0
    """The reward of a unit sold."""
    unit_cost: float = 5.0
    """The cost of a unit ordered."""
    delivery_cost: float = 2.0
    """The cost of an order of any size above 0."""
    holding_cost: float = 0.3
    """The cost of a unit that is left after a step."""

    def __check_init__(self):
        require_counts(**fields(self, "steps", "capacity"))
        require_counts(0, **fields(self, "max_order", "start_stock"))
        require_finite(**fields(self, "price", "unit_cost", "delivery_cost", "holding_cost"))
        if self.start_stock > self.capacity:
            raise RiskpathError(f"start_stock must be at most the capacity {self.capacity}, got {self.start_stock}")
        for name, values in fields(self, "demand", "demand_probs").items():
            if not isinstance(values, tuple) or not values:
                raise RiskpathError(f"{name} must be a tuple of numbers, for example (0, 2, 30); got {values!r}")
        for demand, prob in zip(self.demand, self.demand_probs, strict=False):
            require_counts(0, demand=demand)
            require_share(demand_probs=prob)
        if len(self.demand) != len(self.demand_probs) or abs(sum(self.demand_probs) - 1) > 1e-9:
            raise RiskpathError(
                f"demand_probs must be {len(self.demand)} probabilities with sum 1, one for each demand; "
                f"got {self.demand_probs}"
            )

    def step_reward(self, stock: int, order: int, demand: int) -> float:
        """Return the reward of one step."""
        sold = min(demand, stock + order)
        cost = self.unit_cost * order + self.delivery_cost * (order > 0)
        return self.price * sold - cost - self.holding_cost * (stock + order - sold)

    def features(self, stock: Stock) -> tuple[float, ...]:
        """Return the units in stock and the step, each from −1 to 1."""
        return scaled(stock.units, self.capacity), scaled(stock.step, self.steps)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        require_table("Inventory", self.steps * self.capacity * min(self.max_order + 1, self.capacity + 1))
        step_reward = self.step_reward  # Equinox binds slowly
        outcomes = {}
        for step, stock in product(range(self.steps), range(self.capacity + 1)):
            for order in range(min(self.max_order, self.capacity - stock) + 1):
                outcomes[Stock(stock, step), order] = [
                    (prob, step_reward(stock, order, demand), Stock(max(stock + order - demand, 0), step + 1))
                    for demand, prob in zip(self.demand, self.demand_probs, strict=True)
                ]
        return with_features("Inventory", outcomes, Stock(self.start_stock, 0), self.features, discount)
