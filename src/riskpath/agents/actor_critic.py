"""What the agents with continuous actions share: how actor and critics are trained.

Actions have entries in [−1, 1]. As in TD3 there are two critics, a delayed actor, slowly moving targets, and noise on
the target's action. Of the twins, the one whose law has the lower mean provides the *whole* target law: an element-wise
minimum of quantiles is not the law of any return.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from riskpath.agents.agent import AgentState
from riskpath.agents.config import ActorCriticTraining
from riskpath.agents.learning import adam, mean_over, observe_batch
from riskpath.nn.critics import Twins
from riskpath.types import Key

_ADAM = optax.scale_by_adam(eps=1e-8)


def lower_law(
    t: ActorCriticTraining, twins: Twins, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " M"]
) -> Float[Array, " M"]:
    """Return the pessimistic one of two laws."""
    first, second = (critic.quantiles(x, action, taus) for critic in twins)
    if t.twin_target == "lower_quantiles":
        return jnp.minimum(first, second)
    return jnp.where(jnp.mean(first) <= jnp.mean(second), first, second)


def smooth_action(t: ActorCriticTraining, action: Float[Array, " C"], *, key: Key) -> Float[Array, " C"]:
    """Return the target actor's action with noise, clipped as in TD3."""
    noise = t.target_policy_noise * jax.random.normal(key, action.shape)
    limit = 2.5 * jnp.asarray(t.target_policy_noise)
    return jnp.clip(action + jnp.clip(noise, -limit, limit), -1.0, 1.0)


def saturation_penalty(t: ActorCriticTraining, raw: Float[Array, " C"]) -> Float[Array, ""]:
    """Return a penalty that grows where tanh is flat."""
    return jnp.sum(jnp.maximum(jnp.abs(raw) - t.saturation_limit, 0.0) ** 2)


class Optimisers(eqx.Module):
    """The states of both optimisers."""

    critic: Any
    actor: Any


def new_actor_critic(params: Any, memory: Any) -> AgentState:
    """Return a state with fresh optimisers; `params` has the parts `critic` and `actor`."""
    init = lambda part: _ADAM.init(eqx.filter(part, eqx.is_array))  # noqa: E731
    return AgentState(
        params, params, Optimisers(init(params.critic), init(params.actor)), jnp.zeros((), jnp.int32), memory
    )


def actor_critic_step(
    t: ActorCriticTraining, state: AgentState, critic_loss: Any, actor_loss: Any, batch: Any, *, key: Key
) -> tuple[AgentState, dict[str, Array]]:
    """Take `policy_delay` gradient steps on the critics, each on its own batch, then one on the actor.

    Losses are of one sample: `critic_loss(critic, state, sample, key)` and `actor_loss(actor, state, sample)`.
    """
    state = observe_batch(state, batch)
    parts = jax.tree.map(lambda x: x.reshape(t.policy_delay, t.batch_size, *x.shape[1:]), batch)
    part, losses = batch, []
    for i, step_key in enumerate(jax.random.split(key, t.policy_delay)):
        part = jax.tree.map(lambda x, i=i: x[i], parts)
        state, loss = _critic_step(t, state, critic_loss, part, key=step_key)
        losses.append(loss)
    mean_loss = lambda actor: mean_over(lambda sample: actor_loss(actor, state, sample), part)  # noqa: E731
    gradient = eqx.filter_grad(mean_loss)(state.params.actor)
    places = lambda s: (s.params.actor, s.opt_state.actor)  # noqa: E731
    updated = _adam_step(t, *places(state), gradient, t.actor_learning_rate, state)
    return eqx.tree_at(places, state, updated), {"loss": jnp.mean(jnp.stack(losses))}


def _critic_step(
    t: ActorCriticTraining, state: AgentState, critic_loss: Any, batch: Any, *, key: Key
) -> tuple[AgentState, Float[Array, ""]]:
    keys = jax.random.split(key, t.batch_size)
    mean_loss = lambda critic: mean_over(lambda *given: critic_loss(critic, state, *given), batch, keys)  # noqa: E731
    loss, gradient = eqx.filter_value_and_grad(mean_loss)(state.params.critic)
    places = lambda s: (s.params.critic, s.opt_state.critic)  # noqa: E731
    updated = _adam_step(t, *places(state), gradient, t.learning_rate, state)
    state = eqx.tree_at(places, state, updated)
    return eqx.tree_at(lambda s: s.gradient_steps, state, state.gradient_steps + 1), loss


def _adam_step(
    t: ActorCriticTraining, part: Any, opt_state: Any, gradient: Any, rate: float | Array, state: AgentState
) -> tuple[Any, Any]:
    gradient = jax.lax.optimization_barrier(gradient)  # so that every program rounds it in the same way
    return adam(_ADAM, part, gradient, opt_state, rate * t.decay(state.gradient_steps))
