"""A multi-layer perceptron with an activation after every layer."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from riskpath.nn.kernels import batch_kernels, of_sample
from riskpath.types import Key


class MLP(eqx.Module):
    """Linear layers, each followed by an activation; the last layer's output are features."""

    layers: list[eqx.nn.Linear]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], activation: Callable[[Array], Array] = jax.nn.relu, *, key: Key
    ):
        sizes, keys = (inputs, *hidden), jax.random.split(key, max(1, len(hidden)))
        self.activation = activation
        self.layers = [
            eqx.nn.Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys[: len(hidden)], strict=True)
        ]

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " H"]:
        """Return the features of one input."""
        for layer in self.layers:
            x = self._after(layer, x)
        return x

    def _after(self, layer: eqx.nn.Linear, x: Float[Array, " D"]) -> Float[Array, " H"]:
        kernels = batch_kernels()
        if kernels is not None and self.activation is jax.nn.relu:
            return kernels.relu_layer(layer.weight, layer.bias, of_sample(x))
        return self.activation(layer(x))
