"""A command line in this process, and one tiny agent for all tests, so that they share compiled programs."""

from collections.abc import Callable

import pytest

import riskpath as rp
from riskpath.cli.main import main

Cli = Callable[..., tuple[int, str, str]]

NETWORK = rp.Network(head="table")
TRAINING = rp.Training(
    learning_starts=0,  # a warm-up would be one more program
    target_update_interval=10,
    batch_size=4,
    num_quantiles=4,
    num_target_quantiles=4,
    num_action_quantiles=4,
)
TINY = (
    *("--agent", "iqn", "--agent.head", "table", "--agent.learning-starts", "0"),
    *("--agent.target-update-interval", "10", "--agent.batch-size", "4"),
    *("--agent.num-quantiles", "4", "--agent.num-target-quantiles", "4", "--agent.num-action-quantiles", "4"),
    *("--steps", "80", "--seeds", "2"),
)
"""Options of `train` for an agent with NETWORK and TRAINING."""


@pytest.fixture
def cli(capsys) -> Cli:
    """Return a function that runs a command and returns exit status, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            main(list(arguments))
            status = 0
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
