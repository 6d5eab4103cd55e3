"""Long short-term memory: i, f, g, o = gates(x_t, h_{t−1});  c_t = f c_{t−1} + i g;  h_t = o tanh(c_t)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from riskpath.nn.sequence_model import SequenceModel, run_through
from riskpath.types import Key

FORGET_BIAS = 1.0
"""Added to the forget gate, so that a new network remembers."""


class LSTM(SequenceModel):
    """An LSTM; its state is the cell c and the features h."""

    tokens: eqx.nn.Linear
    recurrent: eqx.nn.Linear

    def __init__(self, inputs: int, width: int, *, key: Key):
        token_key, recurrent_key = jax.random.split(key)
        self.tokens = eqx.nn.Linear(inputs, 4 * width, key=token_key)
        self.recurrent = eqx.nn.Linear(width, 4 * width, use_bias=False, key=recurrent_key)

    def __call__(self, tokens: Float[Array, "T I"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        assert self.tokens.bias is not None
        x = tokens @ self.tokens.weight.T + self.tokens.bias[None, :]
        zeros = jnp.zeros((x.shape[1] // 4,))
        return run_through(self._step, (zeros, zeros), x, valid)[1]

    def _step(
        self, state: tuple[Float[Array, " H"], Float[Array, " H"]], x: Float[Array, " G"], zeros: bool
    ) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        c, h = state
        i, f, g, o = jnp.split(x if zeros else x + self.recurrent(h), 4)
        c = jax.nn.sigmoid(f + FORGET_BIAS) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return c, jax.nn.sigmoid(o) * jnp.tanh(c)
