"""Training hyperparameters: what all agents share, and what is particular to discrete and to continuous actions.

Float fields may be traced: lanes with different values are trained by one compiled program.
"""

import abc
from dataclasses import replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.errors import RiskpathError
from riskpath.hyperparameters import Hyperparameters
from riskpath.nn.network import Network
from riskpath.validation import (
    fields,
    given,
    require_counts,
    require_no_less_than_zero,
    require_positive,
    require_share,
)

UNPLANNED = 50_000.0
"""Gradient steps of a schedule where the length of training is unknown."""
TwinTarget = Literal["lower_mean", "lower_quantiles"]


class BaseTraining(Hyperparameters):
    """Hyperparameters of training; what they are depends on the experience from which an agent learns."""

    @abc.abstractmethod
    def for_steps(self, steps: int) -> "BaseTraining":
        """Return the same with schedules that fit the length of a training, where none are given."""


class ReplayTraining(BaseTraining):
    """Hyperparameters of training from replayed steps that all such agents share."""

    learning_rate: float | Array = 1e-3
    """Learning rate of Adam for the critics."""
    learning_rate_decay: float | Array = 0.1
    """Share of every learning rate that is left in the end; small rates separate nearby quantiles."""
    decay_starts: float | Array | None = 0.0
    """Gradient steps before learning rates begin to fall; None for half of the training."""
    decay_steps: float | Array | None = None
    """Gradient steps over which learning rates then fall linearly; None for 90 % of those that are left."""
    batch_size: int = eqx.field(static=True, default=32)
    """Samples of one gradient step."""
    online_taus: int = eqx.field(static=True, default=32)
    """N, the number of quantile levels of the prediction."""
    target_taus: int = eqx.field(static=True, default=32)
    """M, the number of quantile levels of the target."""
    act_taus: int = eqx.field(static=True, default=64)
    """Number of quantile levels at which the risk of an action is computed."""
    kappa: float | Array | None = None
    """Threshold of the quantile Huber loss in units of the return; by default 1% of the standard deviation of training
    returns. If it is not small beside their spread, critics learn expectiles."""
    reward_scale: float | Array | None = None
    """Factor on rewards inside the critics; by default training returns get a standard deviation of about 1."""
    buffer_size: int = eqx.field(static=True, default=50_000)
    """Transitions in the replay buffer of each lane."""
    learning_starts: int = eqx.field(static=True, default=1_000)
    """Environment steps with random actions before learning starts."""
    train_freq: int = eqx.field(static=True, default=1)
    """Environment steps for each call of `learn`."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Calls of `learn` between two updates of the target networks."""
    target_update_rate: float | Array = 1.0
    """Share of the difference that a target update makes up; 1 copies the parameters."""

    def __check_init__(self):
        counts = ("batch_size", "online_taus", "target_taus", "act_taus", "train_freq", "target_update_interval")
        require_counts(**fields(self, *counts))
        require_counts(2, buffer_size=self.buffer_size)
        require_counts(0, learning_starts=self.learning_starts)
        require_no_less_than_zero(**fields(self, "learning_rate", "learning_rate_decay"))
        require_no_less_than_zero(**given(decay_starts=self.decay_starts))
        require_positive(**given(decay_steps=self.decay_steps, kappa=self.kappa, reward_scale=self.reward_scale))
        require_share(target_update_rate=self.target_update_rate)

    @property
    @abc.abstractmethod
    def samples_per_learn(self) -> int:
        """Return the number of samples for each call of `learn`."""

    @property
    @abc.abstractmethod
    def gradient_steps_per_learn(self) -> int:
        """Return the gradient steps of the critics in one call of `learn`."""

    def for_steps(self, steps: int) -> "ReplayTraining":
        """Return the same with schedules that fit the length of a training, where none are given."""
        total = max(1.0, (steps - self.learning_starts) / self.train_freq * self.gradient_steps_per_learn)
        starts = 0.5 * total if self.decay_starts is None else self.decay_starts
        left = jnp.maximum(1.0, 0.9 * (total - jnp.asarray(starts)))
        found = {"decay_starts": starts, "decay_steps": float(left) if self.decay_steps is None else self.decay_steps}
        return replace(self, **found, **self.exploration_for(total))

    @abc.abstractmethod
    def exploration_for(self, gradient_steps: float) -> dict[str, Any]:
        """Return the fields of exploration that follow from the length of training."""

    @abc.abstractmethod
    def epsilon_at(self, gradient_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the probability of exploring after a number of gradient steps."""

    def decay(self, gradient_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the factor on every learning rate after a number of gradient steps."""
        return 1.0 + self.progress(gradient_steps) * (self.learning_rate_decay - 1.0)

    def progress(self, gradient_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the share of the fall of learning rates that is done, from 0 to 1."""
        since = jnp.maximum(
            gradient_steps.astype(jnp.float32) - (0.0 if self.decay_starts is None else self.decay_starts), 0.0
        )
        return linear(since, 0.0, 1.0, UNPLANNED if self.decay_steps is None else self.decay_steps)

    def settled(self, gradient_steps: Int[Array, ""]) -> Bool[Array, ""]:
        """Tell whether learning rates have fallen by half: too low to learn in other units."""
        return self.decay(gradient_steps) < 0.5


class Training(ReplayTraining):
    """How an agent with discrete actions is trained."""

    epsilon_start: float | Array = 0.25
    """Probability of a random action when learning starts."""
    epsilon_end: float | Array = 0.01
    """Probability of a random action in the end."""
    epsilon_steps: float | Array | None = None
    """Gradient steps over which epsilon falls linearly; None for a fifth of the training."""

    def __check_init__(self):
        require_positive(**given(epsilon_steps=self.epsilon_steps))
        require_share(**fields(self, "epsilon_start", "epsilon_end"))

    @property
    def samples_per_learn(self) -> int:
        """Return one batch."""
        return self.batch_size

    @property
    def gradient_steps_per_learn(self) -> int:
        """Return one."""
        return 1

    def exploration_for(self, gradient_steps: float) -> dict[str, Any]:
        """Return the steps over which epsilon falls: a fifth of the training."""
        return {"epsilon_steps": max(1.0, 0.2 * gradient_steps) if self.epsilon_steps is None else self.epsilon_steps}

    def epsilon_at(self, gradient_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the probability of a random action."""
        steps = UNPLANNED if self.epsilon_steps is None else self.epsilon_steps
        return linear(gradient_steps.astype(jnp.float32), self.epsilon_start, self.epsilon_end, steps)


class ActorCriticTraining(ReplayTraining):
    """How actor and critics are trained; the defaults suit a few hundred thousand steps on four environments."""

    actor_learning_rate: float | Array = 3e-4
    """Learning rate of Adam for the actor."""
    learning_rate_decay: float | Array = 0.03
    decay_starts: float | Array | None = None
    batch_size: int = eqx.field(static=True, default=256)
    act_taus: int = eqx.field(static=True, default=32)
    buffer_size: int = eqx.field(static=True, default=200_000)
    learning_starts: int = eqx.field(static=True, default=8_000)
    train_freq: int = eqx.field(static=True, default=8)
    target_update_interval: int = eqx.field(static=True, default=1)
    target_update_rate: float | Array = 0.04
    policy_delay: int = eqx.field(static=True, default=2)
    """Gradient steps of the critics, each on its own batch, before one of the actor: together one call of `learn`."""
    target_policy_noise: float | Array = 0.05
    """Standard deviation of the noise on the target actor's action."""
    twin_target: TwinTarget = eqx.field(static=True, default="lower_mean")
    """Target of the twin critics: the whole law with the lower mean, or the lower one of each pair of quantiles."""
    saturation_limit: float | Array = 2.5
    """Beyond this value the actor's output before tanh is penalised, where gradients would vanish."""
    epsilon: float | Array = 0.75
    """Share of training episodes that explore; in the others the actor's own action is taken."""
    ou_episodes: float | Array = 0.5
    """Share of training episodes that explore by Ornstein-Uhlenbeck noise; the other exploring episodes hold a random
    action for a while, half of the time."""
    ou_theta: float | Array = 0.05
    """θ of the noise x ← x − θx + σ·normal."""
    ou_sigma: float | Array = 0.3
    """σ of the same."""
    hold_steps: float | Array = 15.0
    """Mean number of steps for which a random action is held."""

    def __check_init__(self):
        require_counts(policy_delay=self.policy_delay)
        require_no_less_than_zero(**fields(self, "actor_learning_rate", "target_policy_noise", "ou_sigma"))
        require_positive(hold_steps=self.hold_steps)
        require_share(**fields(self, "epsilon", "ou_episodes", "ou_theta"))
        if self.twin_target not in get_args(TwinTarget):
            raise RiskpathError(f"twin_target must be {' or '.join(get_args(TwinTarget))}, got {self.twin_target!r}")

    @property
    def samples_per_learn(self) -> int:
        """Return one batch for each gradient step of the critics."""
        return self.batch_size * self.policy_delay

    @property
    def gradient_steps_per_learn(self) -> int:
        """Return one for each batch."""
        return self.policy_delay

    def exploration_for(self, gradient_steps: float) -> dict[str, Any]:
        """Return nothing: exploration does not change."""
        return {}

    def epsilon_at(self, gradient_steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return the share of exploring episodes."""
        return jnp.asarray(self.epsilon, jnp.float32)


def linear(
    steps: Float[Array, ""], first: float | Array, last: float | Array, duration: float | Array
) -> Float[Array, ""]:
    """Interpolate linearly from the first value to the last over `duration` steps, then stay."""
    share = jnp.clip(steps / duration, 0.0, 1.0)
    return jnp.asarray(first + share * (last - first))


PAPER_NETWORK = Network(hidden=(512,), head="deep", history_size=64)
"""The published widths for the grid (the paper does not give the width of its GRU)."""
PAPER_TRAINING = Training(
    learning_rate=1e-3,
    learning_rate_decay=1.0,
    batch_size=32,
    online_taus=64,
    target_taus=64,
    act_taus=128,
    kappa=1.0,
    reward_scale=0.01,
    buffer_size=300_000,
    learning_starts=5_000,
    target_update_interval=500,
    epsilon_start=0.25,
    epsilon_end=0.001,
)
"""The published hyperparameters for the grid (the paper does not say how epsilon falls)."""
PAPER_CONTINUOUS_NETWORK = Network(hidden=(256, 256), history_size=64, window=10, normalize_observations=False)
"""The published widths for mountain-car (the paper does not give the width of its GRU)."""
PAPER_CONTINUOUS_TRAINING = ActorCriticTraining(
    learning_rate=3e-4,
    actor_learning_rate=3e-4,
    learning_rate_decay=1.0,
    batch_size=128,
    online_taus=64,
    target_taus=64,
    act_taus=32,
    kappa=0.2,
    reward_scale=0.05,
    buffer_size=50_000,
    learning_starts=25_000,
    target_update_rate=0.01,
    target_policy_noise=0.2,
)
"""The published hyperparameters for mountain-car. Those that the paper does not give (the critics' learning rate, TD3's
noise) are TD3's own; exploration is ours."""
