"""Sizes that several test files share, and so the compiled programs."""

import riskpath as rp

TINY_ADAPTIVE = {
    "network": rp.Network(hidden=(4,)),
    "training": rp.Training(
        decay_steps=50_000.0,
        epsilon_steps=10_000.0,
        learning_starts=40,
        batch_size=4,
        online_taus=4,
        act_taus=4,
        target_update_interval=20,
    ),
}
"""`rp.Adaptive` with two lanes of one environment on RiskyGrid."""
