"""Encodes observations (and actions) as vectors for networks.

A state number becomes one-hot. An array is flattened and mapped to [−1, 1] by its bounds, or normalised by running
statistics of the observations sampled from the replay buffer. An image first passes through a few convolutions.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.cosines import cos_pi
from riskpath.types import EnvSpec, Key

CLIP = 10.0
"""The limit of a normalised entry, in standard deviations."""
MAX_COUNT = 1e6
"""The largest weight of the past in running statistics, in observations, so that old ones fade."""
REACH = 3.0
"""The range, in standard deviations, within which the cosines of a normalised entry distinguish values."""
MOST_WAVES = 255
"""The largest number of cosines for one entry."""
FEW_ENTRIES = 32
"""Observations with more entries get no cosines."""
SMALLEST_IMAGE = 4
"""By default convolutions are stacked until an image is at most this wide."""


def encode_action(spec: EnvSpec, action: Shaped[Array, "*act"]) -> Float[Array, " C"]:
    """Return an action as a vector; a discrete one becomes one-hot, or one-hot for each head."""
    return action if spec.action_size else jax.nn.one_hot(action, spec.mask_shape[-1]).ravel()


def encoded_action_size(spec: EnvSpec) -> int:
    """Return the length of an encoded action."""
    return spec.action_size or spec.num_actions


class RunningStatistics(eqx.Module):
    """Running mean and variance of observations; not changed by gradients."""

    count: Float[Array, ""]
    mean: Float[Array, " D"]
    variance: Float[Array, " D"]

    def __init__(self, size: int):
        self.count, self.mean, self.variance = jnp.zeros(()), jnp.zeros((size,)), jnp.ones((size,))

    def normalize(self, x: Float[Array, " D"]) -> Float[Array, " D"]:
        """Return (x − mean) / σ, clipped."""
        mean, variance = jax.lax.stop_gradient((self.mean, self.variance))
        return jnp.clip((x - mean) / jnp.sqrt(variance + 1e-8), -CLIP, CLIP)

    def update(self, x: Float[Array, "B D"]) -> "RunningStatistics":
        """Return the statistics after another batch (n σ² and b s² add up, plus (mean − m)² n b/(n + b))."""
        if self.count.ndim:  # those of several networks
            return jax.vmap(lambda one: one.update(x))(self)
        new = float(len(x))
        total, apart = self.count + new, jnp.mean(x, axis=0) - self.mean
        share = new / total
        variance = (1.0 - share) * self.variance + share * jnp.var(x, axis=0) + (1.0 - share) * share * apart**2
        updated = (jnp.minimum(total, MAX_COUNT), self.mean + share * apart, variance)
        return eqx.tree_at(lambda s: (s.count, s.mean, s.variance), self, updated)


class Convolutions(eqx.Module):
    """3×3 convolutions with stride 2, each followed by a relu, written as products with patches.

    Lanes have kernels of their own; as convolutions they would be grouped ones, which are slow everywhere.
    """

    layers: list[eqx.nn.Linear]

    def __init__(self, inputs: int, channels: tuple[int, ...], *, key: Key):
        sizes, keys = (inputs, *channels), jax.random.split(key, len(channels))
        self.layers = [eqx.nn.Linear(9 * i, o, key=k) for i, o, k in zip(sizes[:-1], channels, keys, strict=True)]

    def __call__(self, image: Float[Array, "height width channels"]) -> Float[Array, " D"]:
        """Return the features of an image as a vector."""
        for layer in self.layers:
            assert layer.bias is not None
            image = jax.nn.relu(_patches(image) @ layer.weight.T + layer.bias[None, None, :])
        return image.ravel()


def _patches(image: Float[Array, "height width c"]) -> Float[Array, "h w d"]:
    """Return the nine neighbours of every second pixel, with zeros beyond the edge."""
    high, wide = (_halve(side) for side in image.shape[:2])
    padded = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
    parts = [padded[i : i + 2 * high - 1 : 2, j : j + 2 * wide - 1 : 2] for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, axis=-1)


def _halve(side: int) -> int:
    return (side + 1) // 2


class ObservationEncoder(eqx.Module):
    """x(s), an observation as a vector."""

    spec: EnvSpec
    statistics: RunningStatistics | None
    convolutions: Convolutions | None
    waves: tuple[int, ...] = eqx.field(static=True)
    """Number of cosines of each entry, which distinguish nearby values; () for none."""
    size: int = eqx.field(static=True)
    """Length of the vector."""

    def __init__(self, spec: EnvSpec, normalize: bool, channels: tuple[int, ...] | None, waves: int = 0, *, key: Key):
        self.spec = spec
        entries = spec.num_states if spec.num_states is not None else max(1, math.prod(spec.observation_shape))
        plain = spec.num_states is None and not spec.pixels
        self.statistics = RunningStatistics(entries) if normalize and plain else None
        channels = _default_channels(spec) if channels is None else channels
        self.waves = _waves_of(spec, entries, waves) if plain and not channels else ()
        if not channels:
            coordinates = len(spec.state_coordinates[0]) if spec.state_coordinates else 0
            self.convolutions, self.size = None, entries + sum(self.waves) + coordinates
            return
        if spec.num_states is not None or len(spec.observation_shape) not in (2, 3):
            shown = f"of shape {spec.observation_shape}" if spec.num_states is None else "that are state numbers"
            raise RiskpathError(f"conv_channels need images; this environment has observations {shown}")
        *sides, inputs = _image_shape(spec.observation_shape)
        self.convolutions = Convolutions(inputs, channels, key=key)
        for _ in channels:
            sides = [_halve(side) for side in sides]
        self.size = math.prod(sides) * channels[-1]

    def __call__(self, observation: Shaped[Array, "*obs"]) -> Float[Array, " D"]:
        """Return x(s)."""
        if self.spec.num_states is not None:
            number = jax.nn.one_hot(observation, self.spec.num_states)
            if self.spec.state_coordinates is None:
                return number
            return jnp.concatenate([number, jnp.asarray(self.spec.state_coordinates, jnp.float32)[observation]])
        x = self._scale(observation)
        if self.convolutions is None:
            return jnp.concatenate([x, *self._cosines(x)]) if self.waves else x
        return self.convolutions(_channels_last(x.reshape(self.spec.observation_shape)))

    def _scale(self, observation: Shaped[Array, "*obs"]) -> Float[Array, " D"]:
        """Return the entries of an array, each of the order of 1."""
        flat, spec = jnp.ravel(observation).astype(jnp.float32), self.spec
        if spec.pixels:
            return flat / 255.0
        x = flat
        if spec.observation_bounds is not None:
            low, high = jnp.asarray(spec.observation_bounds, jnp.float32).T
            x = (2.0 * flat - (high + low)) / (high - low)
        if self.statistics is None:
            return x
        return jnp.where(self._known, x, self.statistics.normalize(flat))

    @property
    def _known(self) -> np.ndarray:
        """Which entries have a known number of values: they are scaled by their bounds."""
        levels = self.spec.observation_levels
        return np.zeros(1, bool) if levels is None else np.array(levels) > 0

    def _cosines(self, x: Float[Array, " D"]) -> list[Float[Array, " _"]]:
        """Return cos(π k (x + 1)/2) of every entry; k = 1, 2, … up to its number of cosines."""
        known = np.broadcast_to(self._known | (self.statistics is None), x.shape)
        place = (jnp.clip(jnp.where(known, x, x / REACH), -1.0, 1.0) + 1.0) / 2
        listed = enumerate(self.waves)
        return [cos_pi(jnp.arange(1, count + 1, dtype=jnp.float32) * place[i]) for i, count in listed if count]

    def update_statistics(self, observations: Shaped[Array, "B *obs"]) -> "ObservationEncoder":
        """Return the encoder after a batch of observations; only running statistics change, if there are any."""
        if self.statistics is None:
            return self
        flat = observations.reshape(len(observations), -1).astype(jnp.float32)
        return eqx.tree_at(lambda s: s.statistics, self, self.statistics.update(flat))


def update_statistics(networks: Any, observations: Shaped[Array, "B *obs"]) -> Any:
    """Update the running statistics of every encoder in a PyTree of networks."""
    is_encoder = lambda x: isinstance(x, ObservationEncoder)
    update = lambda x: x.update_statistics(observations) if is_encoder(x) else x
    return jax.tree.map(update, networks, is_leaf=is_encoder)


def _waves_of(spec: EnvSpec, entries: int, waves: int) -> tuple[int, ...]:
    """Return the number of cosines of each entry: enough to distinguish all values if their number is known."""
    if entries > FEW_ENTRIES:
        return ()
    levels = spec.observation_levels or (0,) * entries
    counts = tuple(min(level - 2 + level % 2, MOST_WAVES) if level > 1 else 0 if level else waves for level in levels)
    return counts if any(counts) else ()


def _default_channels(spec: EnvSpec) -> tuple[int, ...]:
    """Return the convolutions for an image, at least two; none for other observations."""
    if not spec.pixels:
        return ()
    channels, side = [], max(_image_shape(spec.observation_shape)[:2])
    while side > SMALLEST_IMAGE or len(channels) < 2:
        channels.append(32 if channels else 16)
        side = _halve(side)
    return tuple(channels)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return jax.eval_shape(_channels_last, jax.ShapeDtypeStruct(shape, jnp.float32)).shape


def _channels_last(image: Float[Array, "*shape"]) -> Float[Array, "height width channels"]:
    """Move the channels, the smaller one of the outer axes, to the end."""
    if image.ndim == 2:
        return image[:, :, None]
    return jnp.moveaxis(image, 0, -1) if image.shape[0] < image.shape[2] else image
