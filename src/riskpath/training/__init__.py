"""The training loop, runs and checkpoints."""
