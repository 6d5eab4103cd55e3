"""What turns observations (and actions) into vectors that networks can work with.

A state number becomes one-hot. An array is flattened and mapped to [−1, 1] by its bounds, or centred and scaled by what
the replay has shown so far. An image goes through a few convolutions first.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key

CLIP = 10.0
"""Standard deviations beyond which a normalised entry is cut off."""
REMEMBERED = 1e6
"""Observations after which older ones are slowly forgotten."""
SMALLEST = 4
"""Convolutions go on until an image is no larger than this, unless told how many."""


def encode_action(spec: EnvSpec, action: Shaped[Array, "*act"]) -> Float[Array, " C"]:
    """An action as a vector: a number becomes one-hot."""
    return action if spec.action_size else jax.nn.one_hot(action, spec.num_actions)


def encoded_action_size(spec: EnvSpec) -> int:
    """The length of an encoded action."""
    return spec.action_size or spec.num_actions


class Statistics(eqx.Module):
    """Mean and variance of everything seen so far; nothing that a gradient changes."""

    count: Float[Array, ""]
    mean: Float[Array, " D"]
    variance: Float[Array, " D"]

    def __init__(self, size: int):
        self.count, self.mean, self.variance = jnp.zeros(()), jnp.zeros((size,)), jnp.ones((size,))

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " D"]:
        """(x − mean) / σ."""
        mean, variance = jax.lax.stop_gradient((self.mean, self.variance))
        return jnp.clip((x - mean) / jnp.sqrt(variance + 1e-8), -CLIP, CLIP)

    def after(self, x: Float[Array, "B D"]) -> "Statistics":
        """With another batch: n σ² and b s² add up, and (mean − m)² n b/(n + b) between the two."""
        new = float(len(x))
        total, apart = self.count + new, jnp.mean(x, axis=0) - self.mean
        share = new / total
        variance = (1.0 - share) * self.variance + share * jnp.var(x, axis=0) + (1.0 - share) * share * apart**2
        found = (jnp.minimum(total, REMEMBERED), self.mean + share * apart, variance)
        return eqx.tree_at(lambda s: (s.count, s.mean, s.variance), self, found)


class Convolutions(eqx.Module):
    """3×3 convolutions with stride 2, each followed by a relu; written as products with patches.

    (Lanes have kernels of their own: as convolutions they would be grouped ones, which are slow everywhere.)
    """

    layers: list[eqx.nn.Linear]

    def __init__(self, inputs: int, channels: tuple[int, ...], *, key: Key):
        sizes, keys = (inputs, *channels), jax.random.split(key, len(channels))
        self.layers = [eqx.nn.Linear(9 * i, o, key=k) for i, o, k in zip(sizes[:-1], channels, keys, strict=True)]

    def __call__(self, image: Float[Array, "height width channels"]) -> Float[Array, " D"]:
        """Features, flattened."""
        for layer in self.layers:
            assert layer.bias is not None
            image = jax.nn.relu(_patches(image) @ layer.weight.T + layer.bias[None, None, :])
        return image.ravel()


def _patches(image: Float[Array, "height width c"]) -> Float[Array, "h w d"]:
    """The nine neighbours of every second pixel, zeros beyond the edge."""
    high, wide = (_halved(side) for side in image.shape[:2])
    padded = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    parts = [padded[i : i + 2 * high - 1 : 2, j : j + 2 * wide - 1 : 2] for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, axis=-1)


def _halved(side: int) -> int:
    return (side + 1) // 2


class Senses(eqx.Module):
    """x(s), an observation as a vector."""

    spec: EnvSpec
    seen: Statistics | None
    convolutions: Convolutions | None
    size: int = eqx.field(static=True)
    """Its length."""

    def __init__(self, spec: EnvSpec, normalise: bool, channels: tuple[int, ...] | None, *, key: Key):
        self.spec = spec
        entries = spec.num_states if spec.num_states is not None else max(1, math.prod(spec.observation_shape))
        self.seen = Statistics(entries) if normalise and spec.num_states is None else None
        channels = _channels(spec) if channels is None else channels
        if not channels:
            self.convolutions, self.size = None, entries
            return
        if spec.num_states is not None or len(spec.observation_shape) not in (2, 3):
            raise RiskpathError(
                f"channels are for images; this environment shows {spec.observation_shape or 'state numbers'}"
            )
        *sides, inputs = _image_shape(spec.observation_shape)
        # The caller uses the same key for the layers that follow.
        self.convolutions = Convolutions(inputs, channels, key=jax.random.fold_in(key, 0))
        for _ in channels:
            sides = [_halved(side) for side in sides]
        self.size = math.prod(sides) * channels[-1]

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, " D"]:
        """x(s)."""
        if self.spec.num_states is not None:
            return jax.nn.one_hot(obs, self.spec.num_states)
        x = self._scaled(obs)
        if self.convolutions is None:
            return x
        return self.convolutions(_channels_last(x.reshape(self.spec.observation_shape)))

    def _scaled(self, obs: Shaped[Array, "*obs"]) -> Float[Array, " D"]:
        """The entries of an array, each of the order of 1."""
        flat = jnp.ravel(obs).astype(jnp.float32)
        if self.seen is not None:
            return self.seen(flat)
        if self.spec.pixels:
            return flat / 255.0
        if self.spec.observation_bounds is None:
            return flat
        low, high = jnp.asarray(self.spec.observation_bounds, jnp.float32).T
        return (2.0 * flat - (high + low)) / (high - low)

    def noticing(self, obs: Shaped[Array, "B *obs"]) -> "Senses":
        """The same after a batch of observations: only statistics change, where there are any."""
        if self.seen is None:
            return self
        return eqx.tree_at(lambda s: s.seen, self, self.seen.after(obs.reshape(len(obs), -1).astype(jnp.float32)))


def notice(networks: Any, obs: Shaped[Array, "B *obs"]) -> Any:
    """All senses in a tree of networks, after a batch of observations."""
    is_senses = lambda x: isinstance(x, Senses)  # noqa: E731
    return jax.tree.map(lambda x: x.noticing(obs) if is_senses(x) else x, networks, is_leaf=is_senses)


def _channels(spec: EnvSpec) -> tuple[int, ...]:
    """As many convolutions as an image needs, at least two; none for anything else."""
    if not spec.pixels:
        return ()
    channels, side = [], max(_image_shape(spec.observation_shape)[:2])
    while side > SMALLEST or len(channels) < 2:
        channels.append(32 if channels else 16)
        side = _halved(side)
    return tuple(channels)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Height, width, channels."""
    return jax.eval_shape(_channels_last, jax.ShapeDtypeStruct(shape, jnp.float32)).shape


def _channels_last(image: Float[Array, "*shape"]) -> Float[Array, "height width channels"]:
    """Channels are the smaller one of the outer axes."""
    if image.ndim == 2:
        return image[:, :, None]
    return jnp.moveaxis(image, 0, -1) if image.shape[0] < image.shape[2] else image
