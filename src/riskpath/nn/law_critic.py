"""A critic that sees a context beside the observation, for example a goal, and predicts the law of the return to go.

The law is given by N atoms θ_i(s, x, a), one for each cell of [0, 1]. Cells are finer at both ends, where most risk
measures look: their edges are x²(3 − 2x) at N + 1 equally spaced x.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.nn.cosines import cos_pi
from riskpath.nn.history_encoder import HistoryEncoder, encode_both
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.types import EnvSpec, Key, Window

WAVES = 8
"""Cosines for each entry of an observation, which help to tell nearby observations apart."""
NUMBER_WAVES = 16
"""Cosines for a number of the context."""
TIME_WAVES = 8
"""Cosines for the share of the episode's time that has passed."""


def cells(count: int) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return the middle levels and the probabilities of `count` cells of [0, 1]."""
    x = np.linspace(0.0, 1.0, count + 1)
    edges = x**2 * (3 - 2 * x)
    return jnp.asarray((edges[1:] + edges[:-1]) / 2, jnp.float32), jnp.asarray(np.diff(edges), jnp.float32)


def cell_quantiles(atoms: Float[Array, "N *A"], taus: Float[Array, " M"]) -> Float[Array, "M *A"]:
    """Return F⁻¹(τ) of atoms with the probabilities of `cells`, along the first axis."""
    _, widths = cells(atoms.shape[0])
    order = jnp.argsort(atoms, axis=0)
    upper = jnp.cumsum(widths[order], axis=0)
    above = jnp.sum(upper[None] < taus.reshape(-1, *[1] * atoms.ndim) - 1e-6, axis=1)
    return jnp.take_along_axis(jnp.sort(atoms, axis=0), jnp.minimum(above, len(atoms) - 1), axis=0)


def within_cells(atoms: Float[Array, " N"], draws: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return one return from each cell, from uniform draws; the quantile function is linear around every atom.

    An atom stands for the whole cell. A target made of atoms alone has less variance than the law they stand for, and
    every backup would lose that much again.
    """
    levels, widths = cells(len(atoms))
    rise = jnp.diff(atoms) / jnp.diff(levels)
    around = (atoms[2:] - atoms[:-2]) / (levels[2:] - levels[:-2])
    slope = jnp.maximum(jnp.concatenate([rise[:1], around, rise[-1:]]), 0.0)
    return atoms + slope * widths * (draws - 0.5)


def describe(x: Float[Array, ""], reach: float) -> Float[Array, " F"]:
    """Return features of a number between −reach and reach: itself, and cosines that tell nearby numbers apart."""
    x = jnp.clip(x / reach, -1.0, 1.0)
    return jnp.concatenate([x[None], cos_pi(jnp.arange(1, NUMBER_WAVES, dtype=jnp.float32) * (x + 1.0) / 2)])


class Inputs(eqx.Module):
    """The first layer: the part of it that depends on the observation, or on the history, alone."""

    encoder: ObservationEncoder
    history: HistoryEncoder | None
    linear: eqx.nn.Linear
    rolling: bool = eqx.field(static=True)
    """Whether a history is only the latest part of an episode."""

    def __init__(self, network: Network, spec: EnvSpec, length: int, *, key: Key):
        encoder_key, history_key, linear_key = jax.random.split(key, 3)
        self.encoder = network.encoder(spec, WAVES, key=encoder_key)
        self.history = HistoryEncoder(self.encoder, network.history_size, key=history_key) if length else None
        self.rolling = spec.max_episode_steps is None or length < spec.max_episode_steps
        size = self.encoder.size + 1 + TIME_WAVES + (network.history_size if length else 0)
        self.linear = eqx.nn.Linear(size, network.hidden[0], key=linear_key)

    def __call__(
        self, observation: Shaped[Array, "*obs"], clock: Float[Array, ""], encoded: Float[Array, " M"] | None = None
    ) -> Float[Array, " H"]:
        """Return the features of an observation, of the share of the time, and of the history that ends there."""
        waves = cos_pi(jnp.arange(1, TIME_WAVES + 1, dtype=jnp.float32) * clock)
        parts = [self.encoder(observation), 2.0 * clock[None] - 1.0, waves]
        return self.linear(jnp.concatenate(parts if encoded is None else [*parts, encoded]))

    def last(
        self,
        observation: Shaped[Array, "T *obs"],
        prev_action: Shaped[Array, "T *act"],
        valid: Bool[Array, " T"],
        clock: Float[Array, ""],
    ) -> Float[Array, " H"]:
        """Return the features of a whole history."""
        assert self.history is not None
        return self(observation[-1], clock, self.history(observation, prev_action, valid)[-1])

    def both(
        self, window: Window, clock: Float[Array, ""], later: Float[Array, ""]
    ) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        """Return the features of h_t and of h_{t+1}, with the shares of the time that have passed."""
        assert self.history is not None
        now, following = encode_both(self.history, window, self.rolling)
        step = window.transition
        return self(step.observation, clock, now), self(step.next_observation, later, following)


class ContextNetwork(eqx.Module):
    """A network of the observation, or of the history, and a context; the context may include a continuous action.

    Its activation is smooth (silu), as the expected utility is in the goal and in most observations.
    """

    inputs: Inputs
    context: eqx.nn.Linear
    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, network: Network, spec: EnvSpec, length: int, context: int, outputs: int, *, key: Key):
        inputs_key, context_key, mlp_key, out_key = jax.random.split(key, 4)
        self.inputs = Inputs(network, spec, length, key=inputs_key)
        self.context = eqx.nn.Linear(context, network.hidden[0], use_bias=False, key=context_key)
        self.mlp = MLP(network.hidden[0], network.hidden[1:], jax.nn.silu, key=mlp_key)
        self.out = eqx.nn.Linear(network.hidden[-1], outputs, key=out_key)

    def __call__(self, features: Float[Array, " H"], context: Float[Array, " F"]) -> Float[Array, " O"]:
        """Return the outputs from the features of the observation and of the context."""
        return self.out(self.mlp(jax.nn.silu(features + self.context(context))))


class LawCritic(eqx.Module):
    """θ(s, x, ·) for discrete actions."""

    net: ContextNetwork
    shape: tuple[int, int] = eqx.field(static=True)
    """N atoms, A actions."""

    def __init__(self, network: Network, spec: EnvSpec, length: int, atoms: int, context: int, *, key: Key):
        self.shape = (atoms, spec.num_actions)
        self.net = ContextNetwork(network, spec, length, context, atoms * spec.num_actions, key=key)

    @property
    def inputs(self) -> Inputs:
        """The part that sees the observation alone."""
        return self.net.inputs

    def __call__(self, features: Float[Array, " H"], context: Float[Array, " F"]) -> Float[Array, "N A"]:
        """Return θ of every action from the features of the observation and of the context."""
        return self.net(features, context).reshape(self.shape)

    def law(
        self, features: Float[Array, " H"], context: Float[Array, " F"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return θ of one action; on a GPU a sum over all actions is faster than an index, and so is its gradient."""
        chosen = jnp.arange(self.shape[1]) == action
        return jnp.sum(jnp.where(chosen, self(features, context), 0.0), axis=1)
