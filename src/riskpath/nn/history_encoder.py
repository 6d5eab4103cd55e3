"""Encodes a history h_t = (s₀, a₀, …, s_t) given as a sequence of tokens (s_i, a_{i−1}).

The current action is not among the tokens: it is an argument of the critic. One pass gives the features of every
prefix, so h_t and h_{t+1} cost little more than one of them. Tokens of earlier episodes stand at the front of a window,
are marked as not valid, and have no effect.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.observation_encoder import ObservationEncoder, encode_action, encoded_action_size
from riskpath.nn.sequence_model import SequenceModel, sequence_model
from riskpath.types import EnvSpec, Key, Window


class HistoryEncoder(eqx.Module):
    """A sequence model of tokens (s_i, a_{i−1})."""

    encoder: ObservationEncoder
    model: SequenceModel

    def __init__(self, encoder: ObservationEncoder, width: int, model: str = "gru", *, key: Key):
        self.encoder = encoder
        inputs = encoder.size + encoded_action_size(encoder.spec)
        self.model = sequence_model(model)(inputs, width, key=key)

    def __call__(
        self, observation: Shaped[Array, "T *obs"], prev_action: Shaped[Array, "T *act"], valid: Bool[Array, " T"]
    ) -> Float[Array, "T H"]:
        """Return the features after each token."""
        first = valid & ~jnp.concatenate([jnp.zeros((1,), bool), valid[:-1]])
        before = jax.vmap(lambda a: encode_action(self.encoder.spec, a))(prev_action)
        before = jnp.where(first[:, None], 0.0, before)  # no action precedes s_0
        encoded = jax.vmap(self.encoder)(observation)
        return self.model(jnp.concatenate([encoded, before], axis=1), valid)


def encode_both(
    encoder: "HistoryEncoder | HistoryIndex", window: Window, rolling: bool
) -> tuple[Shaped[Array, "*H"], Shaped[Array, "*H"]]:
    """Return the features of h_t and of h_{t+1}, as an acting agent would compute them.

    One pass serves both if a history is the whole episode. A rolling window drops its first token at the next step, so
    it needs two passes.
    """
    transition = window.transition
    observation = jnp.concatenate([window.observation, transition.next_observation[None]])
    before = jnp.concatenate([window.prev_action, transition.action[None]])
    valid = jnp.concatenate([window.valid, jnp.ones((1,), bool)])
    if not rolling:
        features = encoder(observation, before, valid)
        return features[-2], features[-1]
    now = encoder(observation[:-1], before[:-1], valid[:-1])[-1]
    return now, encoder(observation[1:], before[1:], valid[1:])[-1]


class HistoryIndex(eqx.Module):
    """Numbers every prefix of a history, for tables: its tokens are the digits.

    If actions alone determine the states, a token is the previous action; otherwise it is the state as well.
    """

    spec: EnvSpec
    base: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, length: int):
        if spec.num_states is None or spec.action_size or spec.action_heads:
            raise RiskpathError("a table needs discrete states and actions; use head='factored'")
        self.spec = spec
        self.base = 1 + spec.num_actions * (1 if spec.deterministic else spec.num_states)
        self.rows = self.base**length

    def __call__(
        self, observation: Int[Array, " T"], prev_action: Int[Array, " T"], valid: Bool[Array, " T"]
    ) -> Int[Array, " T"]:
        """Return the number of each prefix (of its latest `length` tokens)."""
        first = valid & ~jnp.concatenate([jnp.zeros((1,), bool), valid[:-1]])
        before = jnp.where(first, 0, prev_action)
        digits = 1 + (before if self.spec.deterministic else observation * self.spec.num_actions + before)
        number, numbers = jnp.zeros((), jnp.int32), []
        for digit in jnp.where(valid, digits, 0):
            number = (number * self.base + digit) % self.rows
            numbers.append(number)
        return jnp.stack(numbers)
