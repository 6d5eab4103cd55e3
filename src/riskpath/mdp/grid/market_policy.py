"""The policy of a problem with an exogenous price and a position on a lattice: one step ahead over the tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.mdp.grid.form import Form
from riskpath.mdp.grid.mean import MeanTables
from riskpath.mdp.grid.play import Played, choose, look_ahead, play
from riskpath.mdp.grid.policy import read_observation, remembered
from riskpath.mdp.grid.problem import GridState
from riskpath.mdp.grid.tail import Tail

BROADCASTING = partial(jax.numpy_rank_promotion, "allow")
"""The tables combine arrays of different ranks."""


@dataclass(frozen=True, eq=False, repr=False)
class MarketPolicy:
    """A policy of the grid solver: `action, memory = policy(observation, memory, reward)`."""

    form: Form
    means: MeanTables
    """The tables of the mean."""
    tail: Tail | None = None
    """The tables of the tail; None for the mean-optimal policy."""
    goal: float = 0.0
    """The threshold b, which is subtracted from the return so far."""
    _tables: dict[int, Any] = field(default_factory=dict)

    @property
    def problem(self) -> Any:
        """The problem."""
        return self.form.problem

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0) -> tuple[Any, Any]:
        """Return the action for an observation; the memory is the time and the return so far."""
        with BROADCASTING():
            return self._act(state, memory, reward)

    def _act(self, state: Any, memory: Any, reward: float) -> tuple[Any, Any]:
        problem = self.problem
        time, total = remembered(problem, memory, float(reward))
        place = read_observation(problem, state)
        mark = float(problem.potential_at(jnp.int32(time), tuple(jnp.float32(x) for x in place)))
        price = jnp.full((1,), 0.0 if self.form.price is None else place[self.form.price], jnp.float32)
        spot = 0
        if self.form.position is not None:
            spot = round((place[self.form.position] - float(self.form.lattice[0])) / self.form.unit)
        x = jnp.full((1,), total + problem.discount**time * mark - self.goal, jnp.float32)
        spots = jnp.full((1,), spot, jnp.int32)
        options = self.form.decisions_at(time, price, spots)
        chosen = choose(options, self.means, self.tail, self._look_ahead(time), time, price, x)
        return problem.label(int(chosen[0][0])), (time, total)

    def decider(self) -> Callable[..., Any]:
        """Return (time, state, return so far) → the number of the action, for a compiled program."""
        form, problem, tail, tables = self.form, self.problem, self.tail, None
        with BROADCASTING():
            means = self.means._replace(after=jnp.concatenate(self.means.after))
            if tail is not None:
                tables = jnp.concatenate([look_ahead(form, tail, time) for time in range(problem.steps)])

        def decide(time: Array, state: GridState, total: Array) -> Array:
            with BROADCASTING():
                x = total + problem.present(time) * problem.potential_at(time, state) - jnp.float32(self.goal)
                price, place = jnp.zeros(()), jnp.zeros((), jnp.int32)
                if form.price is not None:
                    price = state[form.price]
                if form.position is not None:
                    place = jnp.round((state[form.position] - form.lattice[0]) / form.unit).astype(jnp.int32)
                options = form.decisions_of_one(time, price, place)
                return choose(options, means, tail, tables, time, price[None], x[None], joined=True)[0][0]

        return decide

    def _look_ahead(self, time: int) -> Any:
        if self.tail is not None and time not in self._tables:
            self._tables.clear()  # one table at a time
            self._tables[time] = look_ahead(self.form, self.tail, time)
        return self._tables.get(time)

    def simulate(self, episodes: int, seed: int = 0) -> Float[np.ndarray, " episodes"]:
        """Return the discounted returns of independent episodes of the continuous problem."""
        return self.play(episodes, seed).returns

    def play(self, episodes: int, seed: int = 0) -> Played:
        """Return simulated episodes of the continuous problem."""
        with BROADCASTING():
            return play(self.form, self.means, self.tail, self.goal, episodes, seed)

    @property
    def memory_bytes(self) -> int:
        """The memory of the tables."""
        tables = () if self.tail is None else self.tail.tables
        return sum(table.nbytes for table in (*tables, *self.means.before, *self.means.after))

    def __repr__(self) -> str:
        kind = "mean-optimal" if self.tail is None else f"adaptive, goal {self.goal:.6g}"
        return f"<MarketPolicy of {self.problem.name}: {kind}>"
