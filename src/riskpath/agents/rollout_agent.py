"""What the on-policy agents share: they learn from their own latest steps, in order."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import Agent, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import BaseTraining
from riskpath.agents.experience import Rollout
from riskpath.agents.optimiser import Optimiser
from riskpath.errors import RiskpathError
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import update_statistics
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import CVaR, DistortionMeasure
from riskpath.types import EnvSpec, Key, TimeStep, Transition
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
    """Learning rate."""
    final_learning_rate: float | Array = 2e-5
    """Learning rate at the end; the decay is linear."""
    length: int = eqx.field(static=True, default=128)
    """T, the steps of every environment between two updates."""
    epochs: int = eqx.field(static=True, default=8)
    """How often each step is used."""
    minibatches: int = eqx.field(static=True, default=4)
    """Gradient steps per epoch, each on its own part of the steps."""
    gae_lambda: float | Array = 0.95
    """λ of generalised advantage estimation: 0 trusts the critic, 1 the rewards."""
    clip_range: float | Array = 0.2
    """ε, the relative change of an action's probability beyond which the gradient stops."""
    clip_range_value: float | Array | None = None
    """The largest change of a value in one update, in units of the critic; None for no limit."""
    entropy_weight: float | Array = 0.005
    """Weight of the entropy of the policy at the start."""
    final_entropy_weight: float | Array | None = None
    """Weight of the entropy at the end of training; it changes linearly. None keeps it constant."""
    value_weight: float | Array = 0.5
    """Weight of the squared error of the critic."""
    value_huber: float | Array | None = None
    """Threshold of the critic's Huber loss, in units of the critic; None for a squared loss."""
    max_grad_norm: float | Array = 0.5
    """Gradients are clipped to this norm."""
    log_std: float | Array = -0.5
    """Logarithm of the first standard deviation of continuous actions, whose entries lie in [−1, 1]."""

    def __check_init__(self):
        require_counts(**fields(self, "length", "epochs", "minibatches"))
        positive = fields(self, "clip_range", "max_grad_norm")
        require_positive(**positive, **given(**fields(self, "clip_range_value", "value_huber")))
        require_no_less_than_zero(
            **fields(self, "learning_rate", "final_learning_rate", "entropy_weight", "value_weight")
        )
        require_no_less_than_zero(**given(final_entropy_weight=self.final_entropy_weight))
        require_share(gae_lambda=self.gae_lambda)

    def experience(self, agent: Any, spec: EnvSpec) -> Rollout:
        limit = spec.max_episode_steps
        partial = limit is not None and self.length < limit
        return Rollout(self.length, staggered=partial and not agent.needs_whole_episodes)

    @property
    def optimiser(self) -> Optimiser:
        """Return the optimiser."""
        rates = (self.learning_rate, self.final_learning_rate)
        kind = self.gradient_transformation
        return Optimiser(*rates, max_grad_norm=self.max_grad_norm, kind=kind, eps=1e-5)

    def entropy(self, clock: Clock) -> Float[Array, ""]:
        """Return the weight of the entropy at this point of the training."""
        first, last = self.entropy_weight, self.final_entropy_weight
        return jnp.asarray(first if last is None else first + clock.done * (last - first))


class RolloutAgent(Agent):
    """An agent that learns from a `Trajectory` of its own latest steps."""

    training: RolloutTraining = RolloutTraining()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training hyperparameters."""

    needs_whole_episodes: ClassVar = False
    """Whether it uses the returns of the episodes that end in a rollout, so that none may be cut."""


class PolicyAgent(RolloutAgent):
    """A rollout agent whose policy is a network; discrete actions with masks, several heads, or continuous actions."""

    network: Network = Network(hidden=(64, 64))
    """Sizes and kinds of the networks of policy and critic."""

    actions: ClassVar = "any"
    independent_heads: ClassVar = True

    def __check_init__(self):
        if self.network.head != "factored" or self.network.window:
            why = "has no quantile head and no history: leave network.head and network.window out"
            raise RiskpathError(f"{type(self).__name__} {why}")


class CVaRPolicyAgent(PolicyAgent):
    """A policy agent for CVaR only."""

    risk: DistortionMeasure = eqx.field(default=CVaR(0.25), converter=as_distortion)
    """β, which must be a CVaR."""

    def __check_init__(self):
        if not isinstance(self.risk, CVaR):
            raise RiskpathError(f"{type(self).__name__} maximises CVaR only, got {self.risk}")

    @property
    def level(self) -> float | Array:
        """Return the level of the CVaR."""
        assert isinstance(self.risk, CVaR)
        return self.risk.level


class Taken(eqx.Module):
    """The extras that are stored with every step."""

    drawn: Shaped[Array, "*act"]
    """The drawn action: a continuous one is clipped to [−1, 1] only when it is taken."""
    log_prob: Float[Array, ""]
    """log π_old(a | s)."""
    value: Float[Array, ""]
    """V_old(s), in the units of the return."""
    mask: Bool[Array, "*A"]
    """Which actions were available."""


def take(
    policy: Any, value: Float[Array, ""], time_step: TimeStep, *, key: Key, mode: Mode
) -> tuple[Shaped[Array, "*act"], Taken]:
    """Draw an action from a policy, or take the likeliest one if greedy; return it and what to store with the step."""
    drawn = jnp.where(mode.explores, policy.sample(key=key), policy.best())
    action = drawn if time_step.action_mask.size else jnp.clip(drawn, -1.0, 1.0)
    return action, Taken(drawn, policy.log_prob(drawn), value, time_step.action_mask)


def clipped_epochs(
    agent: RolloutAgent,
    state: AgentState,
    of: Any,
    steps: Transition,
    gains: Float[Array, "T E"],
    following: Float[Array, "T E"],
    unit: Float[Array, ""],
    clock: Clock,
    *,
    key: Key,
    limit: Any = lambda advantages: advantages,
) -> Updated:
    """Return the state and metrics after several epochs of PPO on a rollout.

    Args:
        agent, state, unit, clock, key: As in an update; the unit is that of the critic.
        of: Returns the policy and the predicted value, for parameters and a step.
        steps: The rollout, with `Taken`, or a tuple that starts with it, as extras.
        gains: What each step earns, in units.
        following: The predicted value after each step, in units.
        limit: Changes the advantages that train the policy.
    """
    values = taken_of(steps).value / unit
    delta = gains + agent.discount * jnp.where(steps.terminated, 0.0, following) - values
    advantages = generalised_advantages(delta, decay_of(agent, steps))
    samples = flattened((steps, limit(advantages), advantages + values))
    loss = clipped_objective(agent.training, of, unit, agent.training.entropy(clock))
    return several_epochs(agent, state, loss, samples, clock, key=key)


def clipped_objective(training: RolloutTraining, of: Any, unit: Float[Array, ""], entropy_weight: Any) -> Any:
    """Return PPO's loss as a function of parameters, and of the steps, advantages and returns of a minibatch."""

    def loss(params: Any, steps: Transition, advantages: Float[Array, " B"], returns: Float[Array, " B"]) -> Any:
        def one(step: Transition, advantage: Float[Array, ""], target: Float[Array, ""]) -> Any:
            policy, value = of(params, step)
            return clipped_loss(training, policy, value, taken_of(step), advantage, target, unit, entropy_weight)

        return mean_loss(one, steps, normalised(advantages), returns)

    return loss


def taken_of(step: Transition) -> Taken:
    """Return what `take` stored with a step."""
    return step.extras if isinstance(step.extras, Taken) else step.extras[0]


def decay_of(agent: RolloutAgent, steps: Transition) -> Float[Array, "T E"]:
    """Return γλ, or 0 at the end of an episode."""
    over = steps.terminated | steps.truncated | unfinished(steps)
    return jnp.where(over, 0.0, agent.discount * agent.training.gae_lambda)


def unfinished(steps: Transition) -> Bool[Array, "T E"]:
    """Tell after which steps another episode follows although theirs has not ended: the environment was lost."""
    goes_on = (steps.time[1:] == steps.time[:-1] + 1) | steps.terminated[:-1] | steps.truncated[:-1]
    return jnp.concatenate([~goes_on, jnp.zeros_like(steps.terminated[-1:])])


def several_epochs(
    agent: RolloutAgent, state: AgentState, loss: Any, samples: Any, clock: Clock, *, key: Key
) -> Updated:
    """Return the state and metrics after epochs of gradient steps on `loss(params, *samples)`."""
    t, count = agent.training, len(jax.tree.leaves(samples)[0])
    size = count // t.minibatches
    arrays, fixed = eqx.partition(state.params, eqx.is_array)

    def minibatch(carry: Any, chosen: Any) -> tuple[Any, Any]:
        params, opt_state = eqx.combine(carry[0], fixed), carry[1]
        part = jax.tree.map(lambda x: x[chosen], samples)
        (_, metrics), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(params, *part)
        params, opt_state = t.optimiser.step(params, gradient, opt_state, clock)
        return (eqx.filter(params, eqx.is_array), opt_state), metrics

    def epoch(carry: Any, key: Key) -> tuple[Any, Any]:
        order = jax.random.permutation(key, count)[: size * t.minibatches]
        return jax.lax.scan(minibatch, carry, order.reshape(t.minibatches, size))

    (arrays, opt_state), metrics = jax.lax.scan(epoch, (arrays, state.opt_state), jax.random.split(key, t.epochs))
    # The statistics of observations are updated only now: the old probabilities belong to the old statistics.
    params = update_statistics(eqx.combine(arrays, fixed), samples[0].observation)
    after = eqx.tree_at(lambda s: (s.params, s.opt_state), state, (params, opt_state))
    return after, jax.tree.map(jnp.mean, metrics)


def mean_loss(one: Any, *samples: Any) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return the mean of `clipped_loss` over a minibatch, and metrics."""
    loss, entropy, divergence = (jnp.mean(x) for x in jax.vmap(one)(*samples))
    return loss, {"loss": loss, "entropy": entropy, "kl": divergence}


def clipped_loss(
    training: RolloutTraining,
    policy: Any,
    value: Float[Array, ""],
    taken: Taken,
    advantage: Float[Array, ""],
    target: Float[Array, ""],
    unit: Float[Array, ""],
    entropy_weight: Any,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Return PPO's loss of one step, the entropy, and the KL divergence from the old policy (Schulman's estimate)."""
    t, log_ratio = training, policy.log_prob(taken.drawn) - taken.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - t.clip_range, 1.0 + t.clip_range)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
    error = _squared(t, value - target)
    if t.clip_range_value is not None:
        old = taken.value / unit
        near = old + jnp.clip(value - old, -t.clip_range_value, t.clip_range_value)
        error = jnp.maximum(error, _squared(t, near - target))
    entropy = policy.entropy()
    loss = -surrogate + t.value_weight * 0.5 * error - entropy_weight * entropy
    return loss, entropy, ratio - 1.0 - log_ratio


def _squared(training: RolloutTraining, error: Float[Array, ""]) -> Float[Array, ""]:
    """Return the squared error of the critic; beyond `value_huber` it is linear."""
    if training.value_huber is None:
        return error**2
    near = jnp.clip(error, -training.value_huber, training.value_huber)
    return near * (2.0 * error - near)


def normalised(advantages: Float[Array, " B"]) -> Float[Array, " B"]:
    """Return advantages with mean 0 and standard deviation 1."""
    return (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)


def flattened(stored: Any) -> Any:
    """Return arrays [T, E, …] as [T·E, …]."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), stored)


def final_returns(steps: Transition) -> tuple[Float[Array, "T E"], Bool[Array, "T E"]]:
    """Return the whole return of the episode of every step, and whether it ended within the rollout."""

    def back(later: Any, now: tuple[Transition, Array]) -> tuple[Any, Any]:
        step, lost = now
        ended = step.terminated | step.truncated
        found = jnp.where(ended, step.return_so_far, later[0]), ended | (later[1] & ~lost)
        return found, found

    nothing = jnp.zeros_like(steps.reward[0]), jnp.zeros_like(steps.terminated[0])
    return jax.lax.scan(back, nothing, (steps, unfinished(steps)), reverse=True)[1]


def value_at_risk(
    returns: Float[Array, "T E"], ended: Bool[Array, "T E"], level: Any, weight: Any = 1.0
) -> Float[Array, ""]:
    """Return the quantile of the weighted returns where `ended`, at a level; infinite where there is none."""
    weights = jnp.where(ended, weight, 0.0).ravel()
    ordered, weights = jax.lax.sort((jnp.where(ended, returns, jnp.inf).ravel(), weights), num_keys=1)
    place = jnp.sum(jnp.cumsum(weights) <= level * jnp.sum(weights))
    return ordered[jnp.minimum(place, jnp.maximum(jnp.sum(ended) - 1, 0))]


def generalised_advantages(delta: Float[Array, "T E"], decay: Float[Array, "T E"]) -> Float[Array, "T E"]:
    """Return A_t = δ_t + decay_t A_{t+1}."""

    def back(later: Array, now: Any) -> tuple[Array, Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]
