"""A small causal Transformer: every token attends to itself and to earlier valid tokens.

Layers normalise first: x ← x + attention(norm(x));  x ← x + mlp(norm(x)). Positions count from the first valid token,
so what stands before it has no effect.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from riskpath.nn.sequence_model import SequenceModel
from riskpath.types import Key

LAYERS = 2
HEADS = 4
"""Attention heads; fewer where the width is not a multiple."""
LONGEST_PERIOD = 10_000.0
"""Period of the slowest wave that encodes positions, in units of 2π tokens."""


class Layer(eqx.Module):
    """Attention and a hidden layer, each added to its input."""

    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        attention_key, up_key, down_key = jax.random.split(key, 3)
        heads = next(count for count in range(min(HEADS, width), 0, -1) if width % count == 0)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=attention_key)
        self.norms = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, 2 * width, key=up_key)
        self.down = eqx.nn.Linear(2 * width, width, key=down_key)

    def __call__(self, x: Float[Array, "T H"], mask: Bool[Array, "T T"]) -> Float[Array, "T H"]:
        """Return the features after this layer; `mask[i, j]` tells whether token i sees token j."""
        normed = jax.vmap(self.norms[0])(x)
        x = x + self.attention(normed, normed, normed, mask)
        return x + jax.vmap(lambda one: self.down(jax.nn.gelu(self.up(self.norms[1](one)))))(x)


class Transformer(SequenceModel):
    """A stack of causal attention layers."""

    tokens: eqx.nn.Linear
    layers: tuple[Layer, ...]
    norm: eqx.nn.LayerNorm

    def __init__(self, inputs: int, width: int, *, key: Key):
        token_key, *layer_keys = jax.random.split(key, LAYERS + 1)
        self.tokens = eqx.nn.Linear(inputs, width, key=token_key)
        self.layers = tuple(Layer(width, key=one) for one in layer_keys)
        self.norm = eqx.nn.LayerNorm(width)

    def __call__(self, tokens: Float[Array, "T I"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        mask = jnp.tril(jnp.ones((len(valid), len(valid)), bool)) & valid[None, :]
        x = jax.vmap(self.tokens)(tokens)
        x = x + positions(jnp.cumsum(valid.astype(jnp.float32)) - 1.0, x.shape[1])
        for layer in self.layers:
            x = layer(x, mask)
        return jax.vmap(self.norm)(x)


def positions(count: Float[Array, " T"], width: int) -> Float[Array, "T H"]:
    """Return sines and cosines of positions, from fast waves to slow ones."""
    numbers = np.arange(width)
    rates = jnp.asarray(LONGEST_PERIOD ** (-(numbers // 2 * 2) / width), jnp.float32)
    shifts = jnp.asarray((numbers % 2) * (np.pi / 2), jnp.float32)
    return jnp.sin(count[:, None] * rates[None, :] + shifts[None, :])
