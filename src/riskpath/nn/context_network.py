"""Networks that see a context in addition to the observation or the history, for example a goal."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.nn.cosines import cos_pi
from riskpath.nn.history_encoder import HistoryEncoder, encode_both
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.types import EnvSpec, Key, Window

WAVES = 8
"""Cosines for each entry of an observation, which help to distinguish nearby observations."""
NUMBER_WAVES = 16
"""Cosines for a number of the context."""
TIME_WAVES = 8
"""Cosines for the elapsed fraction of the episode's time."""


def encode_number(x: Float[Array, ""], reach: float) -> Float[Array, " F"]:
    """Return features of a number between −reach and reach: itself, and cosines that distinguish nearby numbers."""
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
        self.history = network.history_encoder(self.encoder, key=history_key) if length else None
        self.rolling = spec.max_episode_steps is None or length < spec.max_episode_steps
        size = self.encoder.size + 1 + TIME_WAVES + (network.history_size if length else 0)
        self.linear = eqx.nn.Linear(size, network.hidden[0], key=linear_key)

    def __call__(
        self, observation: Shaped[Array, "*obs"], clock: Float[Array, ""], encoded: Float[Array, " M"] | None = None
    ) -> Float[Array, " H"]:
        """Return the features of an observation, of the elapsed fraction of time, and of the history."""
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
        """Return the features of h_t and of h_{t+1}, with the elapsed fractions of time."""
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
