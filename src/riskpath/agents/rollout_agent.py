"""Agents that learn from their own latest steps, in order: what they have in common."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import Agent, AgentState
from riskpath.agents.config import BaseTraining
from riskpath.agents.experience import Rollout
from riskpath.types import EnvSpec
from riskpath.validation import (
    fields,
    given,
    require_counts,
    require_no_less_than_zero,
    require_positive,
    require_share,
)


class RolloutTraining(BaseTraining):
    """How an agent is trained on its own latest steps."""

    learning_rate: float | Array = 1e-3
    """Learning rate of Adam."""
    learning_rate_decay: float | Array = 0.02
    """Share of the learning rate that is left in the end; it falls linearly."""
    planned_steps: float | Array | None = None
    """Environment steps over which the learning rate falls; None for the whole training."""
    length: int = eqx.field(static=True, default=128)
    """T, the steps of every environment between two calls of `learn`."""
    epochs: int = eqx.field(static=True, default=8)
    """How often each step is used."""
    minibatches: int = eqx.field(static=True, default=4)
    """Gradient steps of an epoch, each on its own part of the steps."""
    gae_lambda: float | Array = 0.95
    """λ of generalised advantage estimation: 0 trusts the critic, 1 the rewards."""
    clip_range: float | Array = 0.2
    """ε, how far the probability of an action may move from its old one before the gradient stops."""
    clip_range_value: float | Array | None = None
    """How far a value may move from its old one, in units of the critic; None for no limit."""
    entropy_weight: float | Array = 0.005
    """Weight of the entropy of the policy."""
    value_weight: float | Array = 0.5
    """Weight of the squared error of the critic."""
    max_grad_norm: float | Array = 0.5
    """Gradients are clipped to this norm."""
    log_std: float | Array = -0.5
    """Logarithm of the first standard deviation of continuous actions, whose entries lie in [−1, 1]."""

    def __check_init__(self):
        require_counts(**fields(self, "length", "epochs", "minibatches"))
        positive = fields(self, "clip_range", "max_grad_norm")
        require_positive(**positive, **given(clip_range_value=self.clip_range_value, planned_steps=self.planned_steps))
        require_no_less_than_zero(**fields(self, "learning_rate", "entropy_weight", "value_weight"))
        require_share(**fields(self, "gae_lambda", "learning_rate_decay"))

    def for_steps(self, steps: int) -> "RolloutTraining":
        """Return the same with a schedule as long as the training, where none is given."""
        return self if self.planned_steps is not None else replace(self, planned_steps=float(steps))


class RolloutAgent(Agent):
    """An agent that learns from a `Trajectory` of its own latest steps."""

    training: RolloutTraining = RolloutTraining()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training hyperparameters."""

    def experience(self, spec: EnvSpec) -> Rollout:
        """Return rollouts of the length of `training`."""
        return Rollout(self.training.length)

    def learning_rate(self, state: AgentState) -> Float[Array, ""]:
        """Return the learning rate after the share of the training that is done."""
        t, episodes = self.training, state.episodes
        if episodes is None or t.planned_steps is None:
            return jnp.asarray(t.learning_rate)
        share = jnp.clip(episodes.steps * len(episodes.recent) / t.planned_steps, 0.0, 1.0)
        return t.learning_rate * (1.0 + share * (t.learning_rate_decay - 1.0))


def generalised_advantages(delta: Float[Array, "T E"], decay: Float[Array, "T E"]) -> Float[Array, "T E"]:
    """Return A_t = δ_t + decay_t A_{t+1}."""

    def back(later: Array, now: Any) -> tuple[Array, Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]
