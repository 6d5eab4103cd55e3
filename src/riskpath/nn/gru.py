"""The gated recurrent unit: z, r, n = gates(x_t, h_{t−1});  h_t = (1 − z) n + z h_{t−1}."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from riskpath.nn.sequence_model import SequenceModel, run_through
from riskpath.types import Key


class GRU(SequenceModel):
    """A GRU; its state is the features."""

    tokens: eqx.nn.Linear
    recurrent: eqx.nn.Linear

    def __init__(self, inputs: int, width: int, *, key: Key):
        token_key, recurrent_key = jax.random.split(key)
        self.tokens = eqx.nn.Linear(inputs, 3 * width, key=token_key)
        self.recurrent = eqx.nn.Linear(width, 3 * width, key=recurrent_key)

    def __call__(self, tokens: Float[Array, "T I"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        assert self.tokens.bias is not None
        # All tokens in one product: only what depends on the previous step stays inside the recurrence.
        x = tokens @ self.tokens.weight.T + self.tokens.bias[None, :]
        return run_through(self._step, jnp.zeros((x.shape[1] // 3,)), x, valid)

    def _step(self, h: Float[Array, " H"], x: Float[Array, " G"], zeros: bool) -> Float[Array, " H"]:
        width, before = h.shape[0], self.recurrent.bias if zeros else self.recurrent(h)
        assert before is not None
        (new_gates, new), (old_gates, old) = jnp.split(x, [2 * width]), jnp.split(before, [2 * width])
        r, z = jnp.split(jax.nn.sigmoid(new_gates + old_gates), 2)
        n = jnp.tanh(new + r * old)
        return n + z * (h - n)
