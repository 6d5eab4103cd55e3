"""The hyperparameters of `public_environments.py` for each environment, where they differ from the defaults."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """How agents are trained in an environment; everything else is a default of the library."""

    steps: int
    """Environment steps of each seed."""
    num_envs: int = 1
    continuous: bool = False
    """Whether actions are continuous."""
    discount: float = 0.99
    network: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    goal: float | None = None
    """The mean return at which the environment counts as solved."""
    training_limit: int | None = None
    """Most steps of an episode in training, if fewer than in evaluation."""


def _decay(gradient_steps: int) -> dict[str, float]:
    """Return a constant learning rate for the first half of the gradient steps, which falls in the second half."""
    return {"decay_starts": gradient_steps / 2, "decay_steps": gradient_steps / 2}


ACTOR_CRITIC = {"batch_size": 64, "online_taus": 16, "target_taus": 16, "act_taus": 16}
TASKS = {
    "CartPole-v1": Task(
        40_000,
        goal=475.0,
        network={"hidden": (64, 64), "normalize_observations": True},
        training={
            "learning_rate": 5e-4,
            "learning_rate_decay": 0.2,
            "decay_steps": 30_000.0,
            "target_update_interval": 250,
            "kappa": 1.0,
            "reward_scale": 0.2,
        },
    ),
    "Acrobot-v1": Task(
        100_000,
        num_envs=2,
        network={"hidden": (64, 64), "normalize_observations": True},
        training={
            "train_freq": 2,
            "decay_steps": 50_000.0,
            "target_update_interval": 50,  # values travel one step back from the goal with each update of the target
            "kappa": 1.0,
            "reward_scale": 0.05,
            "epsilon_start": 1.0,  # with fewer random actions some seeds never reach the goal
            "epsilon_end": 0.05,
            "epsilon_steps": 25_000.0,
        },
    ),
    "FrozenLake-v1": Task(
        60_000,
        num_envs=2,
        training={
            "train_freq": 2,
            "reward_scale": 1.0,
            "kappa": 0.05,
            "epsilon_start": 1.0,
            "decay_steps": 30_000.0,
        },
    ),
    "Taxi-v4": Task(
        50_000,
        num_envs=2,
        network={"hidden": (128,)},
        training={
            "train_freq": 2,
            "reward_scale": 0.05,
            "kappa": 0.5,
            "epsilon_start": 1.0,
            "decay_steps": 25_000.0,
        },
    ),
    "MiniGrid-Empty-Random-5x5-v0": Task(
        40_000,
        num_envs=4,
        discount=0.95,  # an additional step costs 5%, not 1%
        network={"hidden": (64,), "normalize_observations": True},
        training={
            "train_freq": 2,
            "reward_scale": 1.0,
            "kappa": 0.05,
            "epsilon_start": 1.0,
            "epsilon_end": 0.05,
            "epsilon_steps": 5_000.0,
            "learning_rate": 5e-4,
            "learning_rate_decay": 0.2,
            "decay_steps": 20_000.0,
        },
    ),
    "LunarLander-v3": Task(
        240_000,
        num_envs=4,
        discount=0.98,  # at 0.99 it hovers
        goal=200.0,
        network={"hidden": (64, 64), "normalize_observations": True},
        training={
            "train_freq": 2,
            "batch_size": 64,
            "online_taus": 16,
            "target_taus": 16,
            "act_taus": 32,
            "buffer_size": 100_000,
            "learning_starts": 2_000,
            "decay_steps": 120_000.0,
            "target_update_interval": 50,
            "kappa": 1.0,
            "reward_scale": 0.05,
            "epsilon_start": 1.0,
            "epsilon_end": 0.05,
            "epsilon_steps": 15_000.0,
        },
    ),
    "Pendulum-v1": Task(
        30_000,
        num_envs=2,
        continuous=True,
        discount=0.98,
        goal=-200.0,
        network={"hidden": (64, 64)},
        training={
            **ACTOR_CRITIC,
            "train_freq": 4,
            **_decay(15_000),
            "learning_starts": 2_000,
            "kappa": 1.0,
            "reward_scale": 0.02,
        },
    ),
    "LunarLander-v3, continuous": Task(
        320_000,
        num_envs=4,
        continuous=True,
        discount=0.98,
        goal=200.0,
        network={"hidden": (64, 64), "normalize_observations": True},
        training={
            **ACTOR_CRITIC,
            "train_freq": 4,
            **_decay(160_000),
            "learning_starts": 8_000,
            "kappa": 1.0,
            "reward_scale": 0.05,
            "ou_theta": 0.15,
            "ou_sigma": 0.2,
        },
    ),
    "MountainCarContinuous-v0": Task(
        80_000,
        num_envs=4,
        continuous=True,
        goal=90.0,
        training_limit=300,
        network={"hidden": (64, 64)},
        training={**ACTOR_CRITIC, **_decay(20_000), "kappa": 0.2, "reward_scale": 0.05},
    ),
}
