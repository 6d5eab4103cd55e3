"""The agent protocol: typed hyperparameters and four pure methods. An agent never steps an environment.

    init(spec, *, key)                                → AgentState
    act(state, memory, time_step, *, key, mode)       → ActorOutput(action, memory, extras)
    update(state, batch, clock, *, key)               → AgentState, metrics
    value(state, memory, time_step)                   → predicted value of the rest of the episode

`training` defines the experience, and so the kind of batches; the clock tells the progress of the training. What only
some agents can do is an ability (`abilities.py`). Memory is what an agent carries through an episode;
`AgentState.initial_memory` starts each episode. Extras are stored with the transition. Float hyperparameters may be
traced: lanes with different values share one compiled program.
"""

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from riskpath.agents.clock import Clock
from riskpath.agents.config import BaseTraining, Training
from riskpath.agents.episodes import Episodes
from riskpath.agents.experience import Experience
from riskpath.errors import RiskpathError
from riskpath.hyperparameters import Hyperparameters, completed
from riskpath.nn.network import Network
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import DistortionMeasure, Mean
from riskpath.types import EnvSpec, Key, TimeStep
from riskpath.validation import require_positive, require_share


class AgentState(eqx.Module):
    """Everything that training changes."""

    params: Any
    """The networks being trained."""
    target_params: Any
    """Their delayed copy, which the training loop updates; () for an agent without `TargetNetworks`."""
    opt_state: PyTree
    """The state of the optimiser."""
    initial_memory: Any
    """The memory at the start of every episode."""
    episodes: Episodes | None = None
    """Statistics of the training episodes, kept by the training loop."""


Updated = tuple[AgentState, dict[str, Array]]
"""A state after an update, and metrics."""


class ActorOutput(eqx.Module):
    """What an agent returns when it acts."""

    action: Shaped[Array, "*act"]
    """The action to take."""
    memory: Any = ()
    """The memory for the next step of the episode."""
    extras: Any = ()
    """Arrays to store with the transition, as `Transition.extras`."""


class Mode(eqx.Module):
    """The purpose of an action: `GREEDY`, `EXPLORE` or `WARM_UP`. It may be traced."""

    explores: bool | Bool[Array, ""]
    """Whether the step is a training step. Otherwise the agent takes the action that it thinks best."""
    warms_up: bool | Bool[Array, ""]
    """Whether learning has not started yet, so that the agent only explores."""
    done: float | Float[Array, ""] = 0.0
    """The progress of the training, from 0 to 1."""


GREEDY, EXPLORE, WARM_UP = Mode(False, False), Mode(True, False), Mode(True, True)


class Agent(Hyperparameters):
    """A learning algorithm with its hyperparameters; see `replay_agent.py` and `rollout_agent.py` for its families."""

    risk: DistortionMeasure = eqx.field(default=Mean(), converter=as_distortion)
    """β, the risk measure to maximise; a text such as "cvar:0.1" is accepted."""
    discount: float | Array = 0.99
    """γ."""
    network: Network = Network()
    """Sizes and kinds of the networks."""
    training: BaseTraining = Training()
    """Training hyperparameters."""
    bootstrap_at_limit: bool | None = eqx.field(static=True, default=None)
    """Whether the critic adds the return that it expects after a time limit. By default only where the agent maximises
    a discounted return to go; the risk of the whole return needs an end."""

    actions: ClassVar[Literal["discrete", "continuous", "any"]] = "discrete"
    """The kind of actions that the agent chooses."""
    whole_return: ClassVar[bool] = True
    """Whether the agent maximises β of the whole return, rather than β of the return to go at every step."""
    for_deterministic_transitions: ClassVar[bool] = False
    """Whether the agent maximises β of the whole return only if transitions are deterministic."""
    independent_heads: ClassVar[bool] = False
    """Whether the agent supports several action heads (`EnvSpec.action_heads`). The value of a joint action is then the
    sum of one value per head, and the best action of each head maximises it."""

    def __post_init__(self):
        """Keep the agent's own defaults for the fields of a network or training that were not given."""
        for name, field in type(self).__dataclass_fields__.items():
            default, given = field.default, getattr(self, name)
            if not isinstance(default, Hyperparameters):
                continue
            if not isinstance(given, accepted := type(default)):
                got = type(given).__name__
                raise RiskpathError(f"{name} of {type(self).__name__} must be a {accepted.__name__}, got a {got}")
            object.__setattr__(self, name, completed(given, default))

    def __check_init__(self):
        require_positive(discount=self.discount)
        require_share(discount=self.discount)

    @property
    def ends_at_limit(self) -> Bool[Array, ""]:
        """Return whether a time limit ends the return."""
        if self.bootstrap_at_limit is not None:
            return jnp.asarray(not self.bootstrap_at_limit)
        return jnp.asarray(self.whole_return) | (jnp.asarray(self.discount) >= 1.0)

    def experience(self, spec: EnvSpec) -> Experience:
        """Return how environment steps become the batches of `update`."""
        return self.training.experience(self, spec)

    @abc.abstractmethod
    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh state."""

    @abc.abstractmethod
    def act(self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action and the next memory; `mode` is the purpose of the action."""

    @abc.abstractmethod
    def update(self, state: AgentState, batch: Any, clock: Clock, *, key: Key) -> Updated:
        """Update the state from a batch of the agent's experience."""

    @abc.abstractmethod
    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return the predicted value of the rest of the episode, in the units of the return."""

    def require_actions(self, spec: EnvSpec) -> None:
        """Refuse an environment with a kind of actions that the agent does not support."""
        kind = "continuous" if spec.action_size else "discrete"
        if self.actions not in (kind, "any"):
            others = (
                "AdaptiveContinuous, IQTD3, DSAC, TQLContinuous or PPO"
                if kind == "continuous"
                else "Adaptive, IQN, QRDQN, C51, CVaRDRL, QRSRM, TQL or PPO"
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


def act_greedily(agent: Agent, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key) -> ActorOutput:
    """Let an agent act without exploration."""
    return agent.act(state, memory, time_step, key=key, mode=GREEDY)
