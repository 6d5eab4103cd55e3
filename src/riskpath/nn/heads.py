"""Quantile heads: features of a state or history and a quantile level become Z_a(τ) for every action.

- `FactoredHead`: the last layer combines features ψ and the embedding φ, Z_a(τ) = Σ_k ψ_k W_ka φ_k(τ) + b_a.
  A batch that shares its levels needs one matrix product, and as Z is linear in φ, a mean over levels costs one level.
- `DeepHead`: a hidden layer follows the product, as published for IQN.
- `TableHead`: one number for each row, level and action.

Levels are arguments; a head never draws them.
"""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.cosines import Cosines, chosen_row
from riskpath.types import Key

HeadKind = Literal["factored", "deep", "table"]


class Head(eqx.Module):
    """Maps features and quantile levels to the quantiles of every action."""

    @abc.abstractmethod
    def __call__(self, features: Shaped[Array, "*H"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return Z_a(τ) for every level and action."""

    @abc.abstractmethod
    def of_action(
        self, features: Shaped[Array, "*H"], taus: Float[Array, " N"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return Z_a(τ) of one action, without the work for the others."""

    @abc.abstractmethod
    def mean(self, features: Shaped[Array, "*H"], taus: Float[Array, " N"]) -> Float[Array, " A"]:
        """Return the mean over the levels; with distorted levels this is β[Z_a]."""

    def of_joint(
        self, features: Shaped[Array, "*H"], taus: Float[Array, " N"], action: Int[Array, "*C"], columns: int
    ) -> Float[Array, " N"]:
        """Return Z_a(τ) of one action, or the sum over the parts of a joint action; there are `columns` in all."""
        if action.ndim == 0:
            return self.of_action(features, taus, action)
        parts = jax.vmap(lambda column: self.of_action(features, taus, column))(columns_of(action, columns))
        return jnp.sum(parts, axis=0)


class FactoredHead(Head):
    """The last layer combines the features and the embedding of the level."""

    cosines: Cosines
    out: eqx.nn.Linear

    def __init__(self, width: int, actions: int, *, key: Key):
        wave_key, out_key = jax.random.split(key)
        self.cosines = Cosines(width, key=wave_key)
        self.out = eqx.nn.Linear(width, actions, key=out_key)

    def __call__(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return (ψ ⊙ W) φᵀ + b, without an array of batch × levels × width."""
        return self.cosines(taus) @ (self.out.weight * features[None, :]).T + self._bias[None, :]

    def of_action(
        self, features: Float[Array, " H"], taus: Float[Array, " N"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return φ (ψ ⊙ W_a) + b_a."""
        return self.cosines.of_action(taus, self.out.weight, features, action) + chosen_row(self._bias, action)

    def mean(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, " A"]:
        """Return Z at the mean embedding: Z is linear in φ."""
        return (self.out.weight * self.cosines.mean(taus)[None, :]) @ features + self._bias

    @property
    def _bias(self) -> Float[Array, " A"]:
        assert self.out.bias is not None
        return self.out.bias


class DeepHead(Head):
    """A hidden layer follows the product of features and level embedding, as published."""

    cosines: Cosines
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, width: int, actions: int, *, key: Key):
        wave_key, hidden_key, out_key = jax.random.split(key, 3)
        self.cosines = Cosines(width, key=wave_key)
        self.hidden = eqx.nn.Linear(width, width, key=hidden_key)
        self.out = eqx.nn.Linear(width, actions, key=out_key)

    def __call__(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return W relu(V(ψ ⊙ φ))."""
        return jax.vmap(self.out)(self._last(features, taus))

    def of_action(
        self, features: Float[Array, " H"], taus: Float[Array, " N"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        assert self.out.bias is not None
        return self._last(features, taus) @ chosen_row(self.out.weight, action) + chosen_row(self.out.bias, action)

    def _last(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        return jax.vmap(lambda level: jax.nn.relu(self.hidden(features * level)))(self.cosines(taus))

    def mean(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, " A"]:
        """Return the mean over the levels; there is no shortcut."""
        return jnp.mean(self(features, taus), axis=0)


class TableHead(Head):
    """One number for each row (a state or a history), level and action; nothing is shared between rows.

    The quantile function of a row is constant on each of `levels` equal parts of [0, 1]. Features are row numbers.
    """

    cells: Float[Array, "R K A"]

    def __init__(self, rows: int, levels: int, actions: int):
        if rows * levels * actions > 2**24:
            raise RiskpathError(f"a table of {rows} rows is too large; use head='factored' or a shorter window")
        self.cells = jnp.zeros((rows, levels, actions))

    def _parts(self, taus: Float[Array, " N"]) -> Float[Array, "N K"]:
        """Return which part of [0, 1] each level lies in, as one-hot rows."""
        parts = self.cells.shape[-2]
        return jax.nn.one_hot(jnp.clip(jnp.floor(taus * parts), 0, parts - 1).astype(jnp.int32), parts)

    def __call__(self, features: Int[Array, ""], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        return self._parts(taus) @ self.cells[features]

    def of_action(
        self, features: Int[Array, ""], taus: Float[Array, " N"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        return self._parts(taus) @ self.cells[features, :, action]

    def mean(self, features: Int[Array, ""], taus: Float[Array, " N"]) -> Float[Array, " A"]:
        return jnp.mean(self._parts(taus), axis=0) @ self.cells[features]


def columns_of(action: Int[Array, "*C"], columns: int) -> Int[Array, " D"]:
    """Return the columns of an action, or of all parts of a joint action, whose heads have equally many columns."""
    parts = jnp.atleast_1d(action)
    return parts + jnp.arange(len(parts), dtype=parts.dtype) * (columns // len(parts))


def make_head(kind: HeadKind, width: int, actions: int, *, key: Key) -> Head:
    """Make a head for features by its name."""
    return {"factored": FactoredHead, "deep": DeepHead}[kind](width, actions, key=key)
