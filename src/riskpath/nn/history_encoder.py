"""What reads a history h_t = (s₀, a₀, …, s_t): a sequence of tokens (s_i, a_{i−1}).

The action at hand is never among the tokens: it is what a critic is asked about. One pass gives the features of every
prefix, so h_t and h_{t+1} cost little more than one of them. Tokens of earlier episodes stand, marked as not valid, at
the front of a window and leave no trace.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.observation_encoder import Senses, encode_action, encoded_action_size
from riskpath.types import EnvSpec, Key, Window

HistoryKind = Literal["gru", "lstm", "transformer"]


class History(eqx.Module):
    """Features of every prefix of a sequence of tokens, by a network."""

    senses: Senses
    tokens: eqx.nn.Linear
    body: Any
    kind: HistoryKind = eqx.field(static=True)

    def __init__(self, kind: HistoryKind, senses: Senses, width: int, *, key: Key):
        token_key, body_key = jax.random.split(key)
        self.kind, self.senses = kind, senses
        gates = {"gru": 3, "lstm": 4, "transformer": 1}[kind]
        self.tokens = eqx.nn.Linear(senses.size + encoded_action_size(senses.spec), gates * width, key=token_key)
        body = {"gru": _GRU, "lstm": _LSTM, "transformer": _Attention}[kind]
        self.body = body(width, key=body_key)

    def __call__(
        self, obs: Shaped[Array, "T *obs"], prev_action: Shaped[Array, "T *act"], valid: Bool[Array, " T"]
    ) -> Float[Array, "T H"]:
        """Features after each token."""
        first = valid & ~jnp.concatenate([jnp.zeros((1,), bool), valid[:-1]])
        before = jax.vmap(lambda a: encode_action(self.senses.spec, a))(prev_action)
        before = jnp.where(first[:, None], 0.0, before)  # nothing came before s_0
        encoded = jax.vmap(self.senses)(obs)
        # All tokens in one product: only what depends on the step before is left inside the recurrence.
        x = jnp.concatenate([encoded, before], axis=1) @ self.tokens.weight.T
        assert self.tokens.bias is not None
        return self.body(x + self.tokens.bias[None, :], valid)


def read_both(
    reader: "History | Numbers", window: Window, rolling: bool
) -> tuple[Shaped[Array, "*H"], Shaped[Array, "*H"]]:
    """Features of h_t and of h_{t+1}, as an agent that acts would see them.

    One pass serves both if a history is all of an episode; a rolling window forgets its first token at the next step.
    """
    step = window.step
    obs = jnp.concatenate([window.obs, step.next_obs[None]])
    before = jnp.concatenate([window.prev_action, step.action[None]])
    valid = jnp.concatenate([window.valid, jnp.ones((1,), bool)])
    if not rolling:
        features = reader(obs, before, valid)
        return features[-2], features[-1]
    return reader(obs[:-1], before[:-1], valid[:-1])[-1], reader(obs[1:], before[1:], valid[1:])[-1]


def _recur(advance: Any, linear: eqx.nn.Linear, start: Any, tokens: Any) -> Float[Array, "T H"]:
    """What comes out after each token, given `advance(carry, token, linear of the last output)`.

    Short sequences are written out: no gradient where none is asked for, and no product with the zeros at the start.
    """

    def step(carry: Any, token: Any) -> Any:
        return advance(carry, token, linear(carry[0]))

    if len(tokens[0]) > 16:
        return jax.lax.scan(step, start, tokens, unroll=8)[1]
    # Split, not sliced: the gradient of a split is one concatenation, that of slices a sum of padded arrays.
    first, *others = zip(*(jnp.split(x, len(x)) for x in tokens), strict=True)
    carry, out = advance(start, [x[0] for x in first], linear.bias)
    outs = [out]
    for token in others:
        carry, out = step(carry, [x[0] for x in token])
        outs.append(out)
    return jnp.stack(outs)


class _GRU(eqx.Module):
    """z, r, n = gates(x_t, h_{t−1});  h_t = (1 − z) n + z h_{t−1}."""

    recurrent: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        self.recurrent = eqx.nn.Linear(width, 3 * width, key=key)

    def __call__(self, x: Float[Array, "T G"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        width = x.shape[1] // 3

        def advance(carry: Any, token: Any, old: Float[Array, " G"]) -> Any:
            (h,), (inputs, is_valid) = carry, token
            (new_gates, new), (old_gates, past) = jnp.split(inputs, [2 * width]), jnp.split(old, [2 * width])
            r, z = jnp.split(jax.nn.sigmoid(new_gates + old_gates), 2)
            n = jnp.tanh(new + r * past)
            h = jnp.where(is_valid, n + z * (h - n), h)
            return (h,), h

        return _recur(advance, self.recurrent, (jnp.zeros((width,)),), (x, valid))


class _LSTM(eqx.Module):
    """i, f, o, g = gates(x_t, h_{t−1});  c_t = f c_{t−1} + i g;  h_t = o tanh c_t."""

    recurrent: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        self.recurrent = eqx.nn.Linear(width, 4 * width, key=key)

    def __call__(self, x: Float[Array, "T G"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        width = x.shape[1] // 4

        def advance(carry: Any, token: Any, old: Float[Array, " G"]) -> Any:
            (h, c), (inputs, is_valid) = carry, token
            gates, g = jnp.split(inputs + old, [3 * width])
            i, f, o = jnp.split(jax.nn.sigmoid(gates), 3)
            cell = f * c + i * jnp.tanh(g)
            h, c = jnp.where(is_valid, o * jnp.tanh(cell), h), jnp.where(is_valid, cell, c)
            return (h, c), h

        return _recur(advance, self.recurrent, (jnp.zeros((width,)), jnp.zeros((width,))), (x, valid))


class _Attention(eqx.Module):
    """One causal self-attention layer; positions are steps since the episode (or the window) began."""

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
        time = jnp.cumsum(valid.astype(jnp.float32)) - 1
        angle = time[:, None] / 10_000 ** (jnp.arange(width // 2, dtype=jnp.float32)[None, :] / (width // 2))
        x = jax.nn.relu(x) + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1)
        sees = jnp.tril(jnp.ones((length, length), bool)) & valid[None, :] | jnp.eye(length, dtype=bool)
        normed = jax.vmap(self.norms[0])(x)
        x = x + self.attention(normed, normed, normed, mask=sees)
        return x + jax.vmap(lambda row: self.mlp(self.norms[1](row)))(x)


class Numbers(eqx.Module):
    """Every prefix as a number of its own, for tables: its tokens are the digits.

    If actions alone determine the states a token is the action before, else the state with it.
    """

    spec: EnvSpec
    base: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, length: int):
        if spec.num_states is None or spec.action_size:
            raise RiskpathError("a table needs numbered states and actions; use head='factored'")
        self.spec = spec
        self.base = 1 + spec.num_actions * (1 if spec.deterministic else spec.num_states)
        self.rows = self.base**length

    def __call__(
        self, obs: Int[Array, " T"], prev_action: Int[Array, " T"], valid: Bool[Array, " T"]
    ) -> Int[Array, " T"]:
        """The number of each prefix, at most `length` tokens of it."""
        first = valid & ~jnp.concatenate([jnp.zeros((1,), bool), valid[:-1]])
        before = jnp.where(first, 0, prev_action)
        digits = 1 + (before if self.spec.deterministic else obs * self.spec.num_actions + before)
        number, numbers = jnp.zeros((), jnp.int32), []
        for digit in jnp.where(valid, digits, 0):
            number = (number * self.base + digit) % self.rows
            numbers.append(number)
        return jnp.stack(numbers)
