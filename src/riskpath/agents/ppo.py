"""PPO (Schulman et al., 2017): proximal policy optimisation, for the mean of the return.

A policy π(a | s) and a critic V(s) play T steps in E environments. With the advantages of GAE,

    δ_t = r_t + γ V(s_{t+1}) − V(s_t),     A_t = δ_t + γ λ A_{t+1}

where V(s_{t+1}) is left out after the end of the return and A_{t+1} after the end of an episode, several epochs of
minibatches minimise

    L = − min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) + c_V ½ (V(s) − R)² − c_H H[π(· | s)],     ρ = π(a | s) / π_old(a | s)

with R = A + V_old, and A normalised in each minibatch. The critic counts in a unit that follows the discounted returns
seen; when the unit changes, the last layer is multiplied, so that predictions stay the same.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import ActorOutput, AgentState, Mode
from riskpath.agents.learning import adam
from riskpath.agents.rollout_agent import RolloutAgent, generalised_advantages
from riskpath.errors import RiskpathError
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import update_statistics
from riskpath.nn.policy_networks import FeatureNetwork, Policy
from riskpath.risk.measures import Mean
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory


class Networks(eqx.Module):
    """Everything that is trained."""

    policy: Policy
    critic: FeatureNetwork
    """V(s), in units of `AgentState.episodes.spread`."""


class Taken(eqx.Module):
    """What is stored with every step."""

    drawn: Shaped[Array, "*act"]
    """The action as it was drawn: a continuous one is clipped to [−1, 1] only when it is taken."""
    log_prob: Float[Array, ""]
    """log π_old(a | s)."""
    value: Float[Array, ""]
    """V_old(s), in the units of the return."""
    mask: Bool[Array, "*A"]
    """Which actions were available."""


class PPO(RolloutAgent):
    """Proximal policy optimisation for the mean; discrete actions with masks, several heads, or continuous actions."""

    network: Network = Network(hidden=(64, 64))
    """Sizes and kinds of the networks of policy and critic."""

    actions: ClassVar = "any"
    independent_heads: ClassVar = True
    whole_return: ClassVar = False

    def __check_init__(self):
        if not isinstance(self.risk, Mean):
            raise RiskpathError(f"PPO maximises the mean only, got {self.risk}; use Adaptive for other measures")
        if self.network.head != "factored" or self.network.window:
            raise RiskpathError("PPO has no quantile head and no history: leave network.head and network.window out")

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; there is no memory."""
        policy_key, critic_key = jax.random.split(key)
        policy = Policy(self.network, spec, self.training.log_std, key=policy_key)
        params = Networks(policy, FeatureNetwork(self.network, spec, 1, key=critic_key))
        opt_state = self._optimiser().init(eqx.filter(params, eqx.is_inexact_array))
        return AgentState(params, (), opt_state, jnp.zeros((), jnp.int32), ())

    def act(self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action drawn from π, or the likeliest one if greedy."""
        policy = state.params.policy(time_step.observation, time_step.action_mask)
        drawn = jnp.where(mode.explores, policy.sample(key=key), policy.best())
        action = drawn if time_step.action_mask.size else jnp.clip(drawn, -1.0, 1.0)
        value = self.value(state, memory, time_step)
        return ActorOutput(action, (), Taken(drawn, policy.log_prob(drawn), value, time_step.action_mask))

    def learn(self, state: AgentState, batch: Trajectory, *, key: Key) -> tuple[AgentState, dict[str, Array]]:
        """Take several epochs of gradient steps on a rollout."""
        t, steps, state = self.training, batch.steps, _follow_unit(state)
        unit, rate = _unit(state), self.learning_rate(state)
        values = steps.extras.value / unit
        following = jax.vmap(jax.vmap(lambda s: state.params.critic(s)[0]))(steps.next_observation)
        delta = steps.reward / unit + self.discount * jnp.where(steps.terminated, 0.0, following) - values
        decay = jnp.where(steps.terminated | steps.truncated, 0.0, self.discount * t.gae_lambda)
        advantages = generalised_advantages(delta, decay)
        count, stored = values.size, (steps, advantages, advantages + values)
        flat, size = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), stored), count // t.minibatches
        arrays, fixed = eqx.partition(state.params, eqx.is_array)

        def minibatch(carry: Any, chosen: Any) -> tuple[Any, Any]:
            params, opt_state = eqx.combine(carry[0], fixed), carry[1]
            part = jax.tree.map(lambda x: x[chosen], flat)
            (_, metrics), gradient = eqx.filter_value_and_grad(self.loss, has_aux=True)(params, unit, *part)
            params, opt_state = adam(self._optimiser(), params, gradient, opt_state, rate)
            return (eqx.filter(params, eqx.is_array), opt_state), metrics

        def epoch(carry: Any, key: Key) -> tuple[Any, Any]:
            order = jax.random.permutation(key, count)[: size * t.minibatches]
            return jax.lax.scan(minibatch, carry, order.reshape(t.minibatches, size))

        (arrays, opt_state), metrics = jax.lax.scan(epoch, (arrays, state.opt_state), jax.random.split(key, t.epochs))
        # Observations are normalised anew only now: the old probabilities hold for the old statistics.
        params = update_statistics(eqx.combine(arrays, fixed), flat[0].observation)
        after = (params, opt_state, state.gradient_steps + t.epochs * t.minibatches)
        places = lambda s: (s.params, s.opt_state, s.gradient_steps)  # noqa: E731
        return eqx.tree_at(places, state, after), jax.tree.map(jnp.mean, metrics)

    def loss(
        self, params: Networks, unit: Float[Array, ""], steps: Any, advantages: Float[Array, " B"], returns: Array
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Return L of a minibatch, and what to watch."""
        t = self.training
        advantages = (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)

        def one(step: Any, advantage: Float[Array, ""], target: Float[Array, ""]) -> tuple[Array, Array, Array]:
            taken = step.extras
            policy, value = params.policy(step.observation, taken.mask), params.critic(step.observation)[0]
            log_ratio = policy.log_prob(taken.drawn) - taken.log_prob
            ratio = jnp.exp(log_ratio)
            clipped = jnp.clip(ratio, 1.0 - t.clip_range, 1.0 + t.clip_range)
            surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
            error = (value - target) ** 2
            if t.clip_range_value is not None:
                old = taken.value / unit
                near = old + jnp.clip(value - old, -t.clip_range_value, t.clip_range_value)
                error = jnp.maximum(error, (near - target) ** 2)
            entropy = policy.entropy()
            loss = -surrogate + t.value_weight * 0.5 * error - t.entropy_weight * entropy
            return loss, entropy, ratio - 1.0 - log_ratio

        loss, entropy, divergence = (jnp.mean(x) for x in jax.vmap(one)(steps, advantages, returns))
        return loss, {"loss": loss, "entropy": entropy, "kl": divergence}

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return V(s)."""
        return _unit(state) * state.params.critic(time_step.observation)[0]

    def _optimiser(self) -> optax.GradientTransformation:
        clip = optax.clip_by_global_norm(self.training.max_grad_norm)
        return optax.chain(clip, optax.scale_by_adam(eps=1e-5))


def _unit(state: AgentState) -> Float[Array, ""]:
    return jnp.ones(()) if state.episodes is None else state.episodes.spread


def _follow_unit(state: AgentState) -> AgentState:
    """Return the state in the unit of the discounted returns seen; what the critic predicts stays the same."""
    if state.episodes is None:
        return state
    old, seen = state.episodes.spread, state.episodes.size
    new = jnp.where(seen > 0, seen, old)
    places = lambda s: (s.params.critic.out, s.episodes.spread)  # noqa: E731
    return eqx.tree_at(places, state, (jax.tree.map(lambda x: x * (old / new), state.params.critic.out), new))
