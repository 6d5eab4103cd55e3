"""Hyperparameters of agents, as parts: an agent has a `network` and a `training`, and some of the others.

    Training           replay, optimiser, quantiles and target networks
    RolloutTraining    the same for agents that learn on-policy (`rollout_agent.py`)
    EpsilonGreedy      exploration with discrete actions
    ActionNoise        exploration with continuous actions
    ActorTraining      how an actor is trained beside its critics; `ActorCritic` has the three of them

Float fields may be traced: one compiled program trains lanes with different values. Where only some fields of a part
are given, the others keep the agent's own defaults.
"""

import abc
from dataclasses import replace
from typing import Any, Literal, get_args

import equinox as eqx
from jaxtyping import Array, Bool, Float

from riskpath.agents.clock import ramp
from riskpath.agents.experience import Experience, Replay
from riskpath.agents.optimiser import Optimiser, Transformation, as_transformation
from riskpath.errors import RiskpathError
from riskpath.hyperparameters import Hyperparameters
from riskpath.nn.network import Network
from riskpath.types import EnvSpec
from riskpath.validation import (
    fields,
    given,
    require_counts,
    require_no_less_than_zero,
    require_positive,
    require_share,
)

TwinTarget = Literal["lower_mean", "lower_quantiles"]


class BaseTraining(Hyperparameters):
    """Hyperparameters of training, which depend on the experience from which an agent learns."""

    gradient_transformation: Transformation = eqx.field(
        static=True, default="adam", converter=as_transformation, kw_only=True
    )
    """The optimiser: its name in Optax, such as "adamw" or "lion", or a function of the learning rate that returns an
    Optax transformation. It gets clipped gradients, and the learning rate of the schedule."""

    @abc.abstractmethod
    def experience(self, agent: Any, spec: EnvSpec) -> Experience:
        """Return how environment steps become the batches of an agent's updates."""


class Training(BaseTraining):
    """How an agent with a replay buffer is trained."""

    learning_rate: float | Array = 1e-3
    """Learning rate of the critics."""
    final_learning_rate: float | Array = 1e-4
    """Learning rate at the end; small rates separate nearby quantiles."""
    decay_starts: float | Array = 0.0
    """Fraction of the training after which the learning rates start to decay."""
    decay_ends: float | Array = 0.9
    """Fraction of the training after which they have their final values; the decay is linear."""
    max_grad_norm: float | Array | None = None
    """Gradients are clipped to this norm; None for no limit."""
    batch_size: int = eqx.field(static=True, default=32)
    """Samples per gradient step."""
    num_quantiles: int = eqx.field(static=True, default=32)
    """N, the number of quantile levels of the prediction."""
    num_target_quantiles: int = eqx.field(static=True, default=32)
    """M, the number of quantile levels of the target."""
    num_action_quantiles: int = eqx.field(static=True, default=64)
    """Number of quantile levels at which the risk of an action is computed."""
    kappa: float | Array | None = None
    """Threshold of the quantile Huber loss in units of the return; by default 1% of the standard deviation of training
    returns. If it is not small compared with that, the critics learn expectiles."""
    reward_scale: float | Array | None = None
    """Factor on rewards inside the critics; by default training returns get a standard deviation of about 1."""
    buffer_size: int = eqx.field(static=True, default=50_000)
    """Transitions in the replay buffer of each lane."""
    learning_starts: int = eqx.field(static=True, default=1_000)
    """Environment steps with random actions before learning starts."""
    train_freq: int = eqx.field(static=True, default=1)
    """Environment steps per update."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Updates between two updates of the target networks."""
    target_update_rate: float | Array = 1.0
    """Step size of a target update, target ← target + rate · (parameters − target); 1 copies the parameters."""

    def __check_init__(self):
        counts = ("batch_size", "num_quantiles", "num_target_quantiles", "num_action_quantiles")
        require_counts(**fields(self, *counts, "train_freq", "target_update_interval"))
        require_counts(2, buffer_size=self.buffer_size)
        require_counts(0, learning_starts=self.learning_starts)
        require_no_less_than_zero(**fields(self, "learning_rate", "final_learning_rate"))
        require_positive(**given(**fields(self, "max_grad_norm", "kappa", "reward_scale")))
        require_share(**fields(self, "target_update_rate", "decay_starts", "decay_ends"))

    def experience(self, agent: Any, spec: EnvSpec) -> Replay:
        """Return a replay buffer; an agent with an actor needs a batch for each gradient step of the critics."""
        batches = agent.actor.policy_delay if hasattr(agent, "actor") else 1
        sizes = (self.buffer_size, self.batch_size * batches, self.train_freq)
        return Replay(*sizes, agent.window(spec), agent.n_steps, warm_up=self.learning_starts)

    def optimiser(self, eps: float = 1e-6) -> Optimiser:
        """Return the optimiser of the critics."""
        schedule = (self.learning_rate, self.final_learning_rate, self.decay_starts, self.decay_ends)
        return Optimiser(*schedule, self.max_grad_norm, self.gradient_transformation, eps)

    def progress(self, done: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far the learning-rate decay has progressed, from 0 to 1."""
        return ramp(done, self.decay_starts, self.decay_ends)

    def settled(self, done: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether the learning rate has decayed by half: it is then too low to learn in other units."""
        return self.optimiser().rate(done) < 0.5 * self.learning_rate


class EpsilonGreedy(Hyperparameters):
    """Exploration with discrete actions: a random one with a probability that falls linearly."""

    initial_eps: float | Array = 0.25
    """Probability of a random action when learning starts."""
    final_eps: float | Array = 0.01
    """Probability of a random action at the end."""
    fraction: float | Array = 0.2
    """Fraction of the training over which it falls."""

    def __check_init__(self):
        require_share(**fields(self, "initial_eps", "final_eps", "fraction"))

    def epsilon(self, done: float | Float[Array, ""]) -> Float[Array, ""]:
        """Return the probability of a random action."""
        return self.initial_eps + ramp(done, 0.0, self.fraction) * (self.final_eps - self.initial_eps)


class ActionNoise(Hyperparameters):
    """Exploration with continuous actions: an episode explores in one of two ways, or not at all."""

    episodes: float | Array = 0.75
    """Fraction of training episodes that explore; in the others the actor's own action is taken."""
    ou_episodes: float | Array = 0.5
    """Fraction of training episodes that explore by Ornstein-Uhlenbeck noise; the other exploring episodes hold a
    random action for a while, half of the time."""
    theta: float | Array = 0.05
    """θ of the noise x ← x − θx + σ·normal."""
    sigma: float | Array = 0.3
    """σ of the same noise."""
    hold_steps: float | Array = 15.0
    """Mean number of steps for which a random action is held."""

    def __check_init__(self):
        require_no_less_than_zero(sigma=self.sigma)
        require_positive(hold_steps=self.hold_steps)
        require_share(**fields(self, "episodes", "ou_episodes", "theta"))


class ActorTraining(Hyperparameters):
    """How an actor is trained beside its critics; its learning rate decays when theirs does (`Training`)."""

    learning_rate: float | Array = 3e-4
    """Learning rate of the actor."""
    final_learning_rate: float | Array = 9e-6
    """Learning rate at the end."""
    policy_delay: int = eqx.field(static=True, default=2)
    """Critic steps, each on its own batch, before each actor step; together they are one update."""
    target_policy_noise: float | Array = 0.05
    """Standard deviation of the noise on the target actor's action."""
    twin_target: TwinTarget = eqx.field(static=True, default="lower_mean")
    """Target of the twin critics: the whole distribution with the lower mean, or the lower of each two quantiles."""
    saturation_limit: float | Array = 2.5
    """The actor's output before tanh is penalised beyond this value, where the gradient of tanh vanishes."""

    def __check_init__(self):
        require_counts(policy_delay=self.policy_delay)
        require_no_less_than_zero(**fields(self, "learning_rate", "final_learning_rate", "target_policy_noise"))
        if self.twin_target not in get_args(TwinTarget):
            raise RiskpathError(f"twin_target must be {' or '.join(get_args(TwinTarget))}, got {self.twin_target!r}")

    def optimiser(self, training: Training) -> Optimiser:
        """Return the optimiser of the actor."""
        of_critics = training.optimiser(eps=1e-8)
        return replace(of_critics, learning_rate=self.learning_rate, final_learning_rate=self.final_learning_rate)


CONTINUOUS = Training(
    final_learning_rate=3e-5,
    decay_starts=0.5,
    decay_ends=0.95,
    batch_size=256,
    num_action_quantiles=32,
    buffer_size=200_000,
    learning_starts=8_000,
    train_freq=8,
    target_update_interval=1,
    target_update_rate=0.04,
)
"""The defaults of agents with continuous actions, for four environments."""


class ActorCritic(eqx.Module):
    """The parts of an agent with continuous actions, quantile critics and an actor."""

    training: Training = CONTINUOUS
    """Training hyperparameters of the critics."""
    exploration: ActionNoise = ActionNoise()
    """How training episodes explore."""
    actor: ActorTraining = ActorTraining()
    """How the actor is trained."""


PAPER_NETWORK = Network(hidden=(512,), head="deep", history_size=64)
"""The published widths for the grid (the paper does not give the width of its GRU)."""
PAPER_TRAINING = Training(
    learning_rate=1e-3,
    final_learning_rate=1e-3,
    batch_size=32,
    num_quantiles=64,
    num_target_quantiles=64,
    num_action_quantiles=128,
    kappa=1.0,
    reward_scale=0.01,
    buffer_size=300_000,
    learning_starts=5_000,
    target_update_interval=500,
)
"""The published hyperparameters for the grid."""
PAPER_EXPLORATION = EpsilonGreedy(initial_eps=0.25, final_eps=0.001)
"""The published exploration on the grid (the paper does not say how epsilon falls)."""
PAPER_CONTINUOUS_NETWORK = Network(hidden=(256, 256), history_size=64, window=10, normalize_observations=False)
"""The published widths for mountain-car (the paper does not give the width of its GRU)."""
PAPER_CONTINUOUS_TRAINING = Training(
    learning_rate=3e-4,
    final_learning_rate=3e-4,
    batch_size=128,
    num_quantiles=64,
    num_target_quantiles=64,
    num_action_quantiles=32,
    kappa=0.2,
    reward_scale=0.05,
    buffer_size=50_000,
    learning_starts=25_000,
    train_freq=8,
    target_update_interval=1,
    target_update_rate=0.01,
)
"""The published hyperparameters of the critics for mountain-car; the learning rate is TD3's (the paper gives none)."""
PAPER_ACTOR = ActorTraining(learning_rate=3e-4, final_learning_rate=3e-4, target_policy_noise=0.2)
"""The published hyperparameters of the actor for mountain-car; the noise is TD3's (the paper gives none)."""
