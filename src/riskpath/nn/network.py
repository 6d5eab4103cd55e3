"""Sizes and kinds of the networks that agents use."""

from typing import get_args

import equinox as eqx

from riskpath.errors import RiskpathError
from riskpath.hyperparameters import Hyperparameters
from riskpath.nn.gru import GRU
from riskpath.nn.heads import HeadKind
from riskpath.nn.history_encoder import HistoryEncoder
from riskpath.nn.lstm import LSTM
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.nn.sequence_model import sequence_model
from riskpath.nn.transformer import Transformer
from riskpath.types import EnvSpec, Key
from riskpath.validation import given, require_counts, require_widths

MODELS = (GRU, LSTM, Transformer)
"""The library's own sequence models. They register when they are imported."""


class Network(Hyperparameters):
    """Sizes and kinds of the networks."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Widths of the hidden layers; the last one is the width of the features."""
    head: HeadKind = eqx.field(static=True, default="factored")
    """Quantile head: "factored" (the last layer combines features and quantile levels; fast), "deep" (a hidden layer
    follows, as published), or "table" (no network: one row for each state or history of a small finite problem)."""
    history: str = eqx.field(static=True, default="gru")
    """Encoder of histories: "gru", "lstm", "transformer", or the name of your own `rp.SequenceModel`."""
    history_size: int = eqx.field(static=True, default=16)
    """Width of the encoder of histories; hidden layers follow it."""
    window: int | None = eqx.field(static=True, default=None)
    """Number of latest observations in a history; None for the whole episode."""
    normalize_observations: bool = eqx.field(static=True, default=True)
    """Normalise observations by running statistics of the replay buffer instead of by their bounds."""
    conv_channels: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Channels of 3×3 convolutions, each of which halves an image; None to choose by its size, () for none."""

    gpu_kernels: bool = eqx.field(static=True, default=False)
    """Train with kernels written for NVIDIA GPUs (compute capability 8.0 or newer) where networks have sizes that suit
    them: layers that are multiples of 64, batches and numbers of quantiles that are powers of two from 16 to 128."""

    def __check_init__(self):
        if self.head not in get_args(HeadKind):
            raise RiskpathError(f"head must be {' or '.join(get_args(HeadKind))}, got {self.head!r}")
        if not self.hidden:
            raise RiskpathError("a network needs at least one hidden layer, for example hidden=(64,)")
        require_widths(hidden=self.hidden, conv_channels=self.conv_channels or ())
        sequence_model(self.history)
        require_counts(history_size=self.history_size, **given(window=self.window))

    def encoder(self, spec: EnvSpec, waves: int = 0, *, key: Key) -> ObservationEncoder:
        """Make an encoder of observations, with `waves` cosines for each entry whose number of values is unknown."""
        return ObservationEncoder(spec, self.normalize_observations, self.conv_channels, waves, key=key)

    def history_encoder(self, encoder: ObservationEncoder, *, key: Key) -> HistoryEncoder:
        """Make an encoder of histories from an encoder of observations."""
        return HistoryEncoder(encoder, self.history_size, self.history, key=key)

    def history_length(self, spec: EnvSpec) -> int:
        """Return the number of observations in a history: the window, or the longest episode."""
        length = self.window or spec.max_episode_steps
        if length is None:
            raise RiskpathError(
                "the episode limit of this environment is unknown: give network=rp.Network(window=10), "
                "or set max_episode_steps when the environment is made or registered"
            )
        return min(length, spec.max_episode_steps or length)
