"""A critic for every goal at once: atoms of the return to go, θ_i(s, x, a), for a goal or another number x beside s."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.types import EnvSpec, Key

WAVES = 16
"""Cosines that describe a number."""
REACH = 4.0
"""Numbers are resolved up to this many spreads from the centre."""


def describe(x: Float[Array, ""]) -> Float[Array, " F"]:
    """Return features of a number of the order of 1: itself, and cosines that tell nearby numbers apart."""
    x = jnp.clip(x, -REACH, REACH)
    waves = jnp.cos(jnp.pi * jnp.arange(1, WAVES, dtype=jnp.float32) * (x + REACH) / (2 * REACH))
    return jnp.concatenate([x[None], waves])


class GoalCritic(eqx.Module):
    """θ(s, x, ·): for each action equally likely atoms of the return to go, at the levels (i + ½)/N."""

    encoder: ObservationEncoder
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    mlp: MLP
    out: eqx.nn.Linear
    shape: tuple[int, int] = eqx.field(static=True)
    """N atoms, A actions."""

    def __init__(self, network: Network, spec: EnvSpec, atoms: int, inputs: int, *, key: Key):
        encoder_key, first_key, second_key, mlp_key, out_key = jax.random.split(key, 5)
        self.encoder = network.encoder(spec, key=encoder_key)
        width, self.shape = network.hidden[0], (atoms, spec.num_actions)
        self.first = eqx.nn.Linear(self.encoder.size, width, key=first_key)
        self.second = eqx.nn.Linear(inputs, width, use_bias=False, key=second_key)
        self.mlp = MLP(width, network.hidden[1:], key=mlp_key)
        self.out = eqx.nn.Linear(network.hidden[-1], atoms * spec.num_actions, key=out_key)

    def features(self, observation: Shaped[Array, "*obs"]) -> Float[Array, " H"]:
        """Return the part of the first layer that depends on the observation alone."""
        return self.first(self.encoder(observation))

    def __call__(self, features: Float[Array, " H"], x: Float[Array, " F"]) -> Float[Array, "N A"]:
        """Return θ(s, x, ·) from the features of s and of x."""
        return self.out(self.mlp(jax.nn.relu(features + self.second(x)))).reshape(self.shape)
