"""Train an actor and twin critics, for all agents with continuous actions.

Actions have entries in [−1, 1]. As in TD3 there are two critics, a delayed actor, slowly moving targets, and noise on
the target's action. The twin with the lower mean provides the *whole* target distribution: an element-wise minimum of
quantiles is not the distribution of any return.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import AgentState, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import ActorCritic, ActorTraining, Training
from riskpath.agents.learning import mean_over, observe_batch
from riskpath.agents.optimiser import Optimiser
from riskpath.nn.critics import Twins
from riskpath.nn.losses import stratified
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.types import Key

EPS = 1e-8
"""ε of Adam."""


class Critics(eqx.Module):
    """The parameters that the critics' loss trains."""

    encoder: ObservationEncoder
    twins: Twins


def draw_twin_levels(t: Training, online_key: Key, target_key: Key) -> tuple[Float[Array, " N"], Float[Array, " M"]]:
    """Draw the quantile levels of the prediction and of the target."""
    return stratified(t.num_quantiles, key=online_key), stratified(t.num_target_quantiles, key=target_key)


def lower_law(
    t: ActorTraining, twins: Twins, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " M"]
) -> Float[Array, " M"]:
    """Return the distribution with the lower mean, or the lower quantiles of two distributions."""
    first, second = (critic.quantiles(x, action, taus) for critic in twins)
    if t.twin_target == "lower_quantiles":
        return jnp.minimum(first, second)
    return jnp.where(jnp.mean(first) <= jnp.mean(second), first, second)


def smooth_action(t: ActorTraining, action: Float[Array, " C"], *, key: Key) -> Float[Array, " C"]:
    """Return the target actor's action with noise, clipped as in TD3."""
    noise = t.target_policy_noise * jax.random.normal(key, action.shape)
    limit = 2.5 * jnp.asarray(t.target_policy_noise)
    return jnp.clip(action + jnp.clip(noise, -limit, limit), -1.0, 1.0)


def saturation_penalty(t: ActorTraining, raw: Float[Array, " C"]) -> Float[Array, ""]:
    """Return a penalty that grows where tanh is flat."""
    return jnp.sum(jnp.maximum(jnp.abs(raw) - t.saturation_limit, 0.0) ** 2)


class Optimisers(eqx.Module):
    """The states of both optimisers."""

    critic: Any
    actor: Any


def new_actor_critic(agent: ActorCritic, params: Any, memory: Any) -> AgentState:
    """Return a state with fresh optimisers; `params` has the parts `critic` and `actor`."""
    critic, actor = agent.training.optimiser(EPS), agent.actor.optimiser(agent.training)
    return AgentState(params, params, Optimisers(critic.init(params.critic), actor.init(params.actor)), memory)


def actor_critic_step(
    agent: ActorCritic, state: AgentState, critic_loss: Any, actor_loss: Any, batch: Any, clock: Clock, *, key: Key
) -> Updated:
    """Take `policy_delay` gradient steps on the critics, each on its own batch, then one on the actor.

    The losses are for one sample: `critic_loss(critic, state, sample, key)` and `actor_loss(actor, state, sample)`.
    """
    t, delay, state, losses = agent.training, agent.actor.policy_delay, observe_batch(state, batch), []
    parts, part = jax.tree.map(lambda x: x.reshape(delay, t.batch_size, *x.shape[1:]), batch), batch
    for i, step_key in enumerate(jax.random.split(key, delay)):
        part = jax.tree.map(lambda x, i=i: x[i], parts)
        keys = jax.random.split(step_key, t.batch_size)
        mean_loss = lambda critic, s=state, part=part, keys=keys: mean_over(
            lambda *given: critic_loss(critic, s, *given), part, keys
        )
        loss, gradient = eqx.filter_value_and_grad(mean_loss)(state.params.critic)
        places = lambda s: (s.params.critic, s.opt_state.critic)
        state = eqx.tree_at(places, state, _step(t.optimiser(EPS), *places(state), gradient, clock))
        losses.append(loss)
    mean_loss = lambda actor: mean_over(lambda sample: actor_loss(actor, state, sample), part)
    gradient = eqx.filter_grad(mean_loss)(state.params.actor)
    places = lambda s: (s.params.actor, s.opt_state.actor)
    state = eqx.tree_at(places, state, _step(agent.actor.optimiser(t), *places(state), gradient, clock))
    return state, {"loss": jnp.mean(jnp.stack(losses))}


def _step(optimiser: Optimiser, part: Any, opt_state: Any, gradient: Any, clock: Clock) -> tuple[Any, Any]:
    return optimiser.step(
        part, jax.lax.optimization_barrier(gradient), opt_state, clock
    )  # rounded alike in every program
