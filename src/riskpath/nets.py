"""Networks: what turns observations and histories into features, and features into quantiles.

A critic is Z_a(τ): features ψ of the state (or history) meet an embedding φ of the level τ. In the `Late` head they
meet in the last layer, Z_a(τ) = Σ_k ψ_k W_ka φ_k(τ) + b_a, which is one matrix product for a whole batch that shares
its levels; and as Z is linear in φ, a mean over levels costs one level. The `Deep` head is the one of IQN, with a
hidden layer after the product. Levels are arguments, never drawn here.
"""

import abc
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.types import EnvSpec, Key

HeadKind = Literal["late", "deep"]
HistoryKind = Literal["gru", "lstm", "transformer"]


def encode(spec: EnvSpec, obs: Shaped[Array, "*obs"]) -> Float[Array, " D"]:
    """An observation as a vector: a state number becomes one-hot, an array is flattened."""
    if spec.num_states is not None:
        return jax.nn.one_hot(obs, spec.num_states)
    return jnp.ravel(obs).astype(jnp.float32)


def encoded_size(spec: EnvSpec) -> int:
    """The length of an encoded observation."""
    return spec.num_states if spec.num_states is not None else max(1, int(jnp.prod(jnp.array(spec.obs_shape))))


class Trunk(eqx.Module):
    """Features of a single observation."""

    layers: list[eqx.nn.Linear]
    spec: EnvSpec

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], *, key: Key):
        self.spec = spec
        sizes = (encoded_size(spec), *hidden)
        keys = jax.random.split(key, len(hidden))
        self.layers = [eqx.nn.Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)]

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, " H"]:
        """ψ(s)."""
        x = encode(self.spec, obs)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Head(eqx.Module):
    """Quantiles of every action from features, at given embedded levels."""

    @abc.abstractmethod
    def embed(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        """φ(τ), the same for every sample that shares its levels."""

    @abc.abstractmethod
    def __call__(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, "N A"]:
        """Z_a(τ) for every level and action."""

    @abc.abstractmethod
    def mean(self, features: Float[Array, " H"], levels: Float[Array, "N H"]) -> Float[Array, " A"]:
        """The mean over the levels: with distorted levels, β[Z_a]."""


class _Cosines(eqx.Module):
    """φ(τ) = relu(linear(cos(π i τ), i = 0 … 63)), as in IQN."""

    linear: eqx.nn.Linear

    def __call__(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        waves = jnp.cos(jnp.pi * jnp.arange(64, dtype=jnp.float32)[None, :] * taus[:, None])
        return jax.nn.relu(jax.vmap(self.linear)(waves))


class Late(Head):
    """ψ and φ meet in the last layer."""

    cosines: _Cosines
    out: eqx.nn.Linear

    def __init__(self, width: int, actions: int, *, key: Key):
        wave_key, out_key = jax.random.split(key)
        self.cosines = _Cosines(eqx.nn.Linear(64, width, key=wave_key))
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
        self.cosines = _Cosines(eqx.nn.Linear(64, width, key=wave_key))
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


def make_head(kind: HeadKind, width: int, actions: int, *, key: Key) -> Head:
    """A head by name."""
    return {"late": Late, "deep": Deep}[kind](width, actions, key=key)


class History(eqx.Module):
    """Features of every prefix of a sequence of tokens (s_i, a_{i−1}); the action at hand is never among them."""

    tokens: eqx.nn.Linear
    body: Any
    kind: HistoryKind = eqx.field(static=True)
    spec: EnvSpec

    def __init__(self, kind: HistoryKind, spec: EnvSpec, width: int, *, key: Key):
        token_key, body_key = jax.random.split(key)
        self.kind, self.spec = kind, spec
        self.tokens = eqx.nn.Linear(encoded_size(spec) + spec.num_actions, width, key=token_key)
        if kind == "transformer":
            self.body = _Attention(width, key=body_key)
        else:
            cell = {"gru": eqx.nn.GRUCell, "lstm": eqx.nn.LSTMCell}[kind]
            self.body = cell(width, width, key=body_key)

    def __call__(
        self, obs: Shaped[Array, "T *obs"], prev_action: Int[Array, " T"], valid: Bool[Array, " T"]
    ) -> Float[Array, "T H"]:
        """Features after each token; tokens of earlier episodes (invalid, at the front) leave no trace."""
        first = valid & ~jnp.concatenate([jnp.zeros((1,), bool), valid[:-1]])
        before = jax.nn.one_hot(prev_action, self.spec.num_actions)
        before = jnp.where(first[:, None], 0.0, before)  # nothing came before s_0
        encoded = jax.vmap(lambda o: encode(self.spec, o))(obs)
        x = jax.nn.relu(jax.vmap(self.tokens)(jnp.concatenate([encoded, before], axis=1)))
        if self.kind == "transformer":
            return self.body(x, valid)
        return self._recur(x, valid)

    def _recur(self, x: Float[Array, "T H"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        zero = jnp.zeros_like(x[0])
        start = (zero, zero) if self.kind == "lstm" else zero

        def advance(carry: Any, token: Any) -> Any:
            features, is_valid = token
            new = self.body(features, carry)
            carry = jax.tree.map(lambda n, old: jnp.where(is_valid, n, old), new, carry)
            return carry, carry[0] if self.kind == "lstm" else carry

        return jax.lax.scan(advance, start, (x, valid), unroll=True)[1]


class _Attention(eqx.Module):
    """One causal self-attention layer with learned positions, counted from the end of the window."""

    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    mlp: eqx.nn.MLP

    def __init__(self, width: int, *, key: Key):
        attention_key, mlp_key = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, width, key=attention_key)
        self.norms = (eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width))
        self.mlp = eqx.nn.MLP(width, width, width, 1, key=mlp_key)

    def __call__(self, x: Float[Array, "T H"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        length, width = x.shape
        time = jnp.cumsum(valid.astype(jnp.float32)) - 1  # steps since the episode began
        angle = time[:, None] / 10_000 ** (jnp.arange(width // 2, dtype=jnp.float32)[None, :] / (width // 2))
        x = x + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1)
        sees = jnp.tril(jnp.ones((length, length), bool)) & valid[None, :] | jnp.eye(length, dtype=bool)
        normed = jax.vmap(self.norms[0])(x)
        x = x + self.attention(normed, normed, normed, mask=sees)
        return x + jax.vmap(lambda row: self.mlp(self.norms[1](row)))(x)
