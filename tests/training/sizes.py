"""Sizes that several test files share, and so the compiled programs."""

from typing import Any

import riskpath as rp

TINY_IQN: dict[str, Any] = {
    "network": rp.Network(hidden=(16,)),
    "training": rp.Training(
        learning_starts=0,
        decay_starts=1.0,
        target_update_interval=20,
        batch_size=8,
        num_quantiles=8,
        num_target_quantiles=8,
        num_action_quantiles=8,
    ),
    "exploration": rp.EpsilonGreedy(final_eps=0.25),
}
"""`rp.IQN` with two lanes of one environment on RiskyGrid, without a warm-up, which would be one more program, and with
constant learning rates."""

TINY_ADAPTIVE: dict[str, Any] = {
    "network": rp.Network(hidden=(4,)),
    "training": rp.Training(
        decay_starts=1.0,
        learning_starts=0,
        buffer_size=100,
        batch_size=4,
        num_quantiles=4,
        num_action_quantiles=4,
        target_update_interval=20,
    ),
    "exploration": rp.EpsilonGreedy(final_eps=0.25),
}
"""`rp.Adaptive` with two lanes of one environment on RiskyGrid, without a warm-up; its buffer is full at step 100."""
