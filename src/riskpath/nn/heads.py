"""Networks: what turns vectors into features, and features into quantiles.

A critic is Z_a(τ): features ψ of the state (or history) meet an embedding φ of the level τ. In the `Late` head they
meet in the last layer, Z_a(τ) = Σ_k ψ_k W_ka φ_k(τ) + b_a, which is one matrix product for a whole batch that shares
its levels; and as Z is linear in φ, a mean over levels costs one level. The `Deep` head is the one of IQN, with a
hidden layer after the product. The `Table` head has one number for each row, level and action. Levels are arguments,
never drawn here.
"""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.observation_encoder import Senses
from riskpath.types import Key

HeadKind = Literal["late", "deep", "table"]
WAVES = 64


class Layers(eqx.Module):
    """Linear layers, each followed by a relu."""

    layers: list[eqx.nn.Linear]

    def __init__(self, inputs: int, hidden: tuple[int, ...], *, key: Key):
        sizes, keys = (inputs, *hidden), jax.random.split(key, max(1, len(hidden)))
        self.layers = [
            eqx.nn.Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys[: len(hidden)], strict=True)
        ]

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " H"]:
        """Features."""
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Trunk(eqx.Module):
    """Features of a single observation."""

    senses: Senses
    layers: Layers

    def __init__(self, senses: Senses, hidden: tuple[int, ...], *, key: Key):
        self.senses, self.layers = senses, Layers(senses.size, hidden, key=key)

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, " H"]:
        """ψ(s)."""
        return self.layers(self.senses(obs))


class Head(eqx.Module):
    """Quantiles of every action from features, at given embedded levels."""

    @abc.abstractmethod
    def embed(self, taus: Float[Array, " N"]) -> Float[Array, "N K"]:
        """φ(τ), the same for every sample that shares its levels."""

    @abc.abstractmethod
    def __call__(self, features: Shaped[Array, "*H"], levels: Float[Array, "N K"]) -> Float[Array, "N A"]:
        """Z_a(τ) for every level and action."""

    @abc.abstractmethod
    def mean(self, features: Shaped[Array, "*H"], levels: Float[Array, "N K"]) -> Float[Array, " A"]:
        """The mean over the levels: with distorted levels, β[Z_a]."""


class _Cosines(eqx.Module):
    """φ(τ) = relu(linear(cos(π i τ), i = 0 … 63)), as in IQN."""

    linear: eqx.nn.Linear

    def __call__(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        waves = jnp.cos(jnp.pi * jnp.arange(WAVES, dtype=jnp.float32)[None, :] * taus[:, None])
        return jax.nn.relu(jax.vmap(self.linear)(waves))


class Late(Head):
    """ψ and φ meet in the last layer."""

    cosines: _Cosines
    out: eqx.nn.Linear

    def __init__(self, width: int, actions: int, *, key: Key):
        wave_key, out_key = jax.random.split(key)
        self.cosines = _Cosines(eqx.nn.Linear(WAVES, width, key=wave_key))
        self.out = eqx.nn.Linear(width, actions, key=out_key)

    def embed(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        """φ(τ)."""
        return self.cosines(taus)

    def __call__(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, "N A"]:
        """(ψ ⊙ W) φᵀ + b: never a batch × levels × width array."""
        return levels @ (self.out.weight * features[None, :]).T + self._bias[None, :]

    def mean(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, " A"]:
        """Z is linear in φ, so the mean over levels is Z at the mean embedding."""
        return self.out.weight @ (features * jnp.mean(levels, axis=0)) + self._bias

    @property
    def _bias(self) -> Float[Array, " A"]:
        assert self.out.bias is not None
        return self.out.bias


class Deep(Head):
    """A hidden layer after the product, as published."""

    cosines: _Cosines
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, width: int, actions: int, *, key: Key):
        wave_key, hidden_key, out_key = jax.random.split(key, 3)
        self.cosines = _Cosines(eqx.nn.Linear(WAVES, width, key=wave_key))
        self.hidden = eqx.nn.Linear(width, width, key=hidden_key)
        self.out = eqx.nn.Linear(width, actions, key=out_key)

    def embed(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        """φ(τ)."""
        return self.cosines(taus)

    def __call__(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, "N A"]:
        """W relu(V(ψ ⊙ φ))."""
        return jax.vmap(lambda level: self.out(jax.nn.relu(self.hidden(features * level))))(levels)

    def mean(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, " A"]:
        """No short cut here."""
        return jnp.mean(self(features, levels), axis=0)


class Table(Head):
    """One number for each row (a state, a history), level and action: nothing is shared, nothing is smoothed.

    The quantile function of a row is constant on each of `levels` equal parts of [0, 1]. Its features are row numbers.
    """

    cells: Float[Array, "R K A"]

    def __init__(self, rows: int, levels: int, actions: int):
        if rows * levels * actions > 2**24:
            raise RiskpathError(f"a table of {rows} rows is too large; use head='factored' or a shorter window")
        self.cells = jnp.zeros((rows, levels, actions))

    def embed(self, taus: Float[Array, " N"]) -> Float[Array, "N K"]:
        """In which part of [0, 1] a level lies."""
        parts = self.cells.shape[-2]
        return jax.nn.one_hot(jnp.clip(jnp.floor(taus * parts), 0, parts - 1).astype(jnp.int32), parts)

    def __call__(self, features: Int[Array, ""], levels: Float[Array, "N K"]) -> Float[Array, "N A"]:
        """The cells of a row."""
        return levels @ self.cells[features]

    def mean(self, features: Int[Array, ""], levels: Float[Array, "N K"]) -> Float[Array, " A"]:
        """The mean over the levels."""
        return jnp.mean(levels, axis=0) @ self.cells[features]


def make_head(kind: HeadKind, width: int, actions: int, *, key: Key) -> Head:
    """A head on features, by name."""
    return {"late": Late, "deep": Deep}[kind](width, actions, key=key)
