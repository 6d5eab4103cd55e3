"""The agent protocol: typed hyperparameters and four pure methods. An agent never steps an environment.

    init(spec, *, key)                                    → AgentState
    act(state, memory, time_step, *, key, epsilon)        → ActorOutput(action, memory, extras)
    learn(state, batch, *, key)                           → AgentState, metrics
    quantiles(state, memory, time_step, taus)             → quantiles of the return for each action

Everything else is data or a default. Memory is what an agent carries through an episode; `AgentState.initial_memory`
starts each episode. Extras are stored with the transition. The training loop updates target networks as the training
configuration says. Float hyperparameters may be traced: lanes with different values share one compiled program.
"""

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from riskpath.agents.config import ActorCriticTraining, BaseTraining, Training
from riskpath.agents.episodes import Episodes
from riskpath.errors import RiskpathError
from riskpath.hyperparameters import Hyperparameters, completed
from riskpath.nn.losses import midpoints
from riskpath.nn.network import Network
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import DistortionMeasure, Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, TimeStep
from riskpath.validation import require_counts, require_positive, require_share


class AgentState(eqx.Module):
    """Everything that learning changes."""

    params: Any
    """The networks being trained."""
    target_params: Any
    """Their delayed copy, updated by the training loop."""
    opt_state: PyTree
    """The state of the optimiser."""
    gradient_steps: Int[Array, ""]
    """Gradient steps of the critics so far."""
    initial_memory: Any
    """The memory at the start of every episode."""
    episodes: Episodes | None = None
    """Statistics of the training episodes, kept by the training loop."""


class ActorOutput(eqx.Module):
    """What an agent returns when it acts."""

    action: Shaped[Array, "*act"]
    """The action to take."""
    memory: Any = ()
    """What to carry to the next step of the episode."""
    extras: Any = ()
    """Arrays to store with the transition, as `Transition.extras`."""


class Agent(Hyperparameters):
    """A learning algorithm with its hyperparameters; derive from `MemorylessAgent` or `HistoryAgent`."""

    risk: DistortionMeasure = eqx.field(default=Mean(), converter=as_distortion)
    """β, the risk measure to maximise; a text such as "cvar:0.1" is accepted."""
    discount: float | Array = 0.99
    """γ."""
    network: Network = Network()
    """Sizes and kinds of the networks."""
    training: BaseTraining = Training()
    """Training hyperparameters."""
    n_steps: int = eqx.field(static=True, default=1)
    """Largest number of rewards in a target; it falls to 1 with the learning rate. A target ends earlier where the
    stored action is not the best one, so that it stays a target for the best policy. More than 1 needs IQN or Adaptive
    without a history."""
    bootstrap_at_limit: bool | None = eqx.field(static=True, default=None)
    """Whether a time limit that cuts an episode off is no end: the critic adds what it expects after the limit. By
    default only where β is of the return to go and discounted. The risk of the whole return needs an end."""

    actions: ClassVar[Literal["discrete", "continuous"]] = "discrete"
    """Which kind of actions the agent chooses."""
    several_steps: ClassVar[bool] = False
    """Whether the agent learns from `Segment`s of several steps."""
    whole_return: ClassVar[bool] = True
    """Whether the agent maximises the risk of the whole return, not of the return to go at every step."""
    for_deterministic_transitions: ClassVar[bool] = False
    """Whether the agent maximises the risk of the whole return only if transitions are not random."""
    independent_heads: ClassVar[bool] = False
    """Whether the agent can choose several things at once by one head for each (`EnvSpec.action_heads`): the value of a
    joint action is then the sum of its parts, which the best of each part maximises."""

    def __post_init__(self):
        """Keep the agent's own defaults where a network or a training was given in part."""
        for name in ("network", "training"):
            default = type(self).__dataclass_fields__[name].default
            object.__setattr__(self, name, completed(getattr(self, name), default))

    def __check_init__(self):
        require_positive(discount=self.discount)
        require_share(discount=self.discount)
        require_counts(n_steps=self.n_steps)
        if self.n_steps > 1 and not self.several_steps:
            raise RiskpathError(f"{type(self).__name__} learns from single steps: leave n_steps at 1")
        kind = ActorCriticTraining if self.actions == "continuous" else Training
        for name, accepted in (("network", Network), ("training", kind)):
            if not isinstance(value := getattr(self, name), accepted):
                got = type(value).__name__
                raise RiskpathError(f"{name} of {type(self).__name__} must be a {accepted.__name__}, got a {got}")

    @property
    def ends_at_limit(self) -> Bool[Array, ""]:
        """Return whether a time limit ends the return."""
        if self.bootstrap_at_limit is not None:
            return jnp.asarray(not self.bootstrap_at_limit)
        return jnp.asarray(self.whole_return) | (jnp.asarray(self.discount) >= 1.0)

    @abc.abstractmethod
    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh state."""

    @abc.abstractmethod
    def act(
        self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, epsilon: Float[Array, ""]
    ) -> ActorOutput:
        """Return an action and the next memory.

        `epsilon` is the probability of exploring: 0 for the greedy action, 1 for nothing but exploration.
        """

    @abc.abstractmethod
    def learn(self, state: AgentState, batch: Any, *, key: Key) -> tuple[AgentState, dict[str, Array]]:
        """Update the state from a batch: of `Transition`s, or of `Window`s for a `HistoryAgent`."""

    @abc.abstractmethod
    def quantiles(
        self, state: AgentState, memory: Any, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the predicted quantiles of the return for each action, in the units of the return.

        An agent with continuous actions returns one column, for its own action.
        """

    @abc.abstractmethod
    def window(self, spec: EnvSpec) -> int:
        """Return how many observations of history a sample needs; 0 for none."""

    def refresh(self, state: AgentState) -> AgentState:
        """Return the state after the target networks were updated; recompute here what follows from the networks."""
        return state

    def population(self) -> tuple[int, int | None]:
        """Return how many policies a state holds, and how many held-out episodes each plays; None for a default."""
        return 1, 0

    def preferred(self, state: AgentState) -> Int[Array, ""]:
        """Return the member that the networks think best."""
        return jnp.zeros((), jnp.int32)

    def with_members(self, state: AgentState, weights: Float[Array, " M"]) -> AgentState:
        """Return a state in which an episode is played by each member with these probabilities."""
        return state

    def weights(self, state: AgentState) -> Float[Array, " M"]:
        """Return the probabilities with which an episode is played by each member."""
        return jnp.ones((1,))

    def can_serve(self, risk: RiskMeasure) -> bool:
        """Tell whether a trained state also serves another measure, after `refresh`."""
        return risk == self.risk

    def estimate(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, " A"]:
        """Return β of the predicted return for each action, ∫₀¹ Z(·; h⁻¹(τ)) dτ."""
        levels = self.risk.distort(midpoints(self.training.act_taus))
        return jnp.mean(self.quantiles(state, memory, time_step, levels), axis=0)

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return the estimate of the best available action."""
        estimates, mask = self.estimate(state, memory, time_step), time_step.action_mask
        if not mask.size:
            return estimates[0]
        return jnp.sum(jnp.max(jnp.where(mask, estimates.reshape(mask.shape), -jnp.inf), axis=-1))

    def require_actions(self, spec: EnvSpec) -> None:
        """Refuse an environment whose kind of actions the agent cannot choose."""
        kind = "continuous" if spec.action_size else "discrete"
        if kind != self.actions:
            others = (
                "AdaptiveContinuous, IQTD3 or TQLContinuous"
                if kind == "continuous"
                else "Adaptive, IQN, CVaRDRL, QRSRM or TQL"
            )
            raise RiskpathError(
                f"{type(self).__name__} needs {self.actions} actions, but this environment has {kind} actions: "
                f"use {others}"
            )
        if spec.action_heads and not self.independent_heads:
            sizes = " × ".join(map(str, spec.action_heads))
            raise RiskpathError(
                f"{type(self).__name__} cannot choose among {sizes} joint actions: use IQN or TQL, which have a head "
                "for each choice, or offer fewer combinations by gymnasium.wrappers.TransformAction"
            )


class MemorylessAgent(Agent):
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


class HistoryAgent(Agent):
    """An agent that learns from windows of history and remembers one while it acts."""

    def window(self, spec: EnvSpec) -> int:
        """Return the length of a history: the network's window, or the longest episode."""
        return self.network.history_length(spec)

    def empty_history(self, spec: EnvSpec) -> HistoryMemory:
        """Return the memory at the start of an episode."""
        return empty_history(spec, self.window(spec))


def act_greedily(agent: Agent, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key) -> ActorOutput:
    """Let an agent act without exploration."""
    return agent.act(state, memory, time_step, key=key, epsilon=jnp.zeros(()))
