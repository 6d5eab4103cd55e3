"""What agents with a replay buffer share, and the histories that some of them remember."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.abilities import Quantiles, TargetNetworks
from riskpath.agents.agent import Agent, AgentState
from riskpath.agents.config import EpsilonGreedy, Training
from riskpath.errors import RiskpathError
from riskpath.nn.losses import midpoints
from riskpath.types import EnvSpec, TimeStep
from riskpath.validation import require_counts


class ReplayAgent(Agent, TargetNetworks):
    """An agent that learns from replayed steps and has target networks."""

    training: Training = Training()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training hyperparameters."""
    exploration: EpsilonGreedy = EpsilonGreedy()
    """How training episodes explore."""
    n_steps: int = eqx.field(static=True, default=1)
    """Largest number of rewards in a target (n-step returns); it falls to 1 with the learning rate. A target ends
    earlier where the stored action is not the best one, so it remains a target for the best policy. More than 1 needs
    IQN or Adaptive without a history."""

    several_steps: ClassVar[bool] = False
    """Whether the agent learns from `Segment`s of several steps."""

    def __check_init__(self):
        require_counts(n_steps=self.n_steps)
        if self.n_steps > 1 and not self.several_steps:
            raise RiskpathError(f"{type(self).__name__} learns from single steps: leave n_steps at 1")

    @abc.abstractmethod
    def window(self, spec: EnvSpec) -> int:
        """Return the number of observations in the history of a sample; 0 for no history."""

    @property
    def target_update(self) -> tuple[int, float | Array]:
        return self.training.target_update_interval, self.training.target_update_rate


class QuantileAgent(ReplayAgent, Quantiles):
    """An agent whose estimate is β of the quantiles that it predicts."""

    def estimate(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, " A"]:
        """Return β of the predicted return for each action, ∫₀¹ Z(·; h⁻¹(τ)) dτ."""
        levels = self.risk.distort(midpoints(self.training.num_action_quantiles))
        return jnp.mean(self.quantiles(state, memory, time_step, levels), axis=0)

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        return best_available(self.estimate(state, memory, time_step), time_step.action_mask)


def best_available(estimates: Float[Array, " A"], mask: Bool[Array, "*M"]) -> Float[Array, ""]:
    """Return the largest estimate of the available actions, the sum of the largest ones of several heads."""
    if not mask.size:
        return estimates[0]
    return jnp.sum(jnp.max(jnp.where(mask, estimates.reshape(mask.shape), -jnp.inf), axis=-1))


class MemorylessAgent(QuantileAgent):
    """An agent that learns from single transitions."""

    def window(self, spec: EnvSpec) -> int:
        """Return 0: no history is needed."""
        return 0


class HistoryMemory(eqx.Module):
    """The latest observations of an episode and the actions before them."""

    observation: Shaped[Array, "T *obs"]
    prev_action: Shaped[Array, "T *act"]
    valid: Bool[Array, " T"]
    """Which entries are filled."""

    def extend(self, time_step: TimeStep) -> "HistoryMemory":
        """Return the history with a new observation at its end."""
        return HistoryMemory(
            jnp.concatenate([self.observation[1:], time_step.observation[None].astype(self.observation.dtype)]),
            jnp.concatenate([self.prev_action[1:], time_step.prev_action[None]]),
            jnp.concatenate([self.valid[1:], jnp.ones((1,), bool)]),
        )


def empty_history(spec: EnvSpec, length: int) -> HistoryMemory:
    """Return a history of a given length without observations."""
    none = spec.no_action()
    return HistoryMemory(
        jnp.zeros((length, *spec.observation_shape), spec.observation_dtype),
        jnp.zeros((length, *none.shape), none.dtype),
        jnp.zeros((length,), bool),
    )


class HistoryAgent(QuantileAgent):
    """An agent that learns from windows of history and remembers one while it acts."""

    def window(self, spec: EnvSpec) -> int:
        """Return the length of a history: the network's window, or the longest episode."""
        return self.network.history_length(spec)

    def empty_history(self, spec: EnvSpec) -> HistoryMemory:
        """Return the memory at the start of an episode."""
        return empty_history(spec, self.window(spec))
