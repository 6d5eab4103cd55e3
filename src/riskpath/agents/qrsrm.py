"""QR-SRM (Moghimi & Ku, 2025): maximises a utility of the whole return, derived from the critic's own prediction.

A risk-averse distortion measure is the largest of many expected utilities, β[R] = max_u E[u(R)]. The best u is concave
and has slope h′(F(z)): h is the distortion, F the distribution function of R. With K levels of equal weight

    u(z) = Σ_k Δ_k (t_k b_k + min(z − b_k, 0)),     t_k = h⁻¹(k/K),     b_k = F⁻¹(t_k)     (Δ_k z if t_k = 1)
    Δ_k = φ_k − φ_{k+1},     φ_k = 1 / (K (t_k − t_{k−1})),     φ_{K+1} = 0

For CVaR this is b + min(z − b, 0)/η. The critic sees the return so far, s_t = R_{0:t−1}, and c_t = γᵗ:

    a = argmax_a E[u(s + c Z(x, s, c, a))]
    Z(x, s, c, a; τ) ← r + γ Z′(x′, s + c r, γ c, a′; τ′),     a′ by the same rule from the target network

u is held fixed between two estimates. An estimate takes F from Z(x₀, 0, 1, a₀), with a₀ = argmax_a β[Z(x₀, 0, 1, a)].
Until the first one u is linear.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.abilities import Refreshes
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.learning import draw_levels, explore_greedily, gradient_step, masked_argmax, new_state, scales
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.errors import RiskpathError
from riskpath.nn.critics import AugmentedCritic
from riskpath.nn.losses import midpoints, quantile_huber, sample_quantiles
from riskpath.nn.network import Network
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import CVaR, DistortionMeasure
from riskpath.types import EnvSpec, Key, TimeStep, Transition, power
from riskpath.validation import require_counts

NEXT_TO = 1e-6
"""The smallest distance between levels; a level closer than this to 1 counts as 1."""


class UtilityMemory(eqx.Module):
    """What the agent carries through an episode."""

    so_far: Float[Array, ""]
    """s_t."""
    knots: Float[Array, " K"]
    """b_k, in the units of the critic; ∞ where u is linear. An episode keeps the utility it started with."""


class QRSRM(MemorylessAgent, Refreshes):
    """Static spectral (risk-averse) measures and discrete actions, by a utility of the whole return."""

    risk: DistortionMeasure = eqx.field(default=CVaR(0.25), converter=as_distortion)
    """β; must be averse or neutral: the mean, CVaR, Wang and POW at negative levels, and mixtures of them."""
    network: Network = Network(hidden=(64, 64))
    pieces: int = eqx.field(static=True, default=32)
    """K, the number of linear pieces of the utility; CVaR needs only one."""
    utility_interval: int = eqx.field(static=True, default=1)
    """Target updates between two estimates of the utility."""

    def __check_init__(self):
        require_counts(pieces=self.pieces, utility_interval=self.utility_interval)
        if not self.risk.concave:
            raise RiskpathError(
                f"QRSRM optimises risk-averse measures only, got {self.risk}; use TQL for other measures"
            )

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh critic and a linear utility."""
        memory = UtilityMemory(jnp.zeros(()), jnp.full((self.pieces,), jnp.inf, jnp.float32))
        return new_state(self, AugmentedCritic(self.network, spec, key=key), memory)

    def act(
        self, state: AgentState, memory: UtilityMemory, time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return argmax_a E[u(s + c Z)], or a random action."""
        (scale, _), s, c = scales(self.training, state), *self._stock(memory, time_step)
        features = state.params.features(time_step.observation, scale * s, c)
        values = self._values(state.params, features, scale * s, c, scale * memory.knots)
        action = explore_greedily(self, values, time_step, key=key, mode=mode)
        return ActorOutput(action, UtilityMemory(s, memory.knots))

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on Z."""
        scale, kappa = scales(self.training, state)
        taus, target_taus = draw_levels(self, key=key)
        target_critic, knots = state.target_params, scale * state.initial_memory.knots

        def loss(critic: AugmentedCritic, step: Transition) -> Float[Array, ""]:
            c, following = power(self.discount, step.time), scale * step.return_so_far
            features = target_critic.features(step.next_observation, following, self.discount * c)
            values = self._values(target_critic, features, following, self.discount * c, knots)
            future = target_critic.of_action(features, target_taus, masked_argmax(values, step.next_action_mask))
            target = scale * step.reward + jnp.where(step.terminated, 0.0, self.discount * future)
            now = critic.features(step.observation, following - scale * c * step.reward, c)
            predicted = critic.of_action(now, taus, step.action)
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), kappa)

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: UtilityMemory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return s + c Z(x, s, c, ·; τ), the whole return."""
        (scale, _), s, c = scales(self.training, state), *self._stock(memory, time_step)
        return s + c * state.params.quantiles(state.params.features(time_step.observation, scale * s, c), taus) / scale

    def refresh(self, state: AgentState, clock: Clock) -> AgentState:
        """Return the state with a new utility from the critic's prediction at the start, if an estimate is due."""
        if state.episodes is None:
            return state
        episodes, count = state.episodes, self.training.num_action_quantiles

        def law(start: Shaped[Array, "*obs"], mask: Bool[Array, " A"], taus: Float[Array, " K"]) -> Float[Array, " K"]:
            features = state.params.features(start, jnp.zeros(()), jnp.ones(()))
            values = jnp.mean(state.params.quantiles(features, self.risk.distort(midpoints(count))), axis=0)
            return state.params.of_action(features, taus, masked_argmax(values, mask))

        # Every start has its own levels: where all starts are equal, they are the levels of one fine distribution.
        taus = midpoints(count * len(episodes.first_observation)).reshape(count, -1).T
        atoms = jax.vmap(law)(episodes.first_observation, episodes.first_action_mask, taus)
        knots = utility_knots(self.risk, atoms.ravel(), self.pieces) / scales(self.training, state)[0]
        due = (clock.updates // self.training.target_update_interval) % self.utility_interval == 0
        return eqx.tree_at(lambda s: s.initial_memory.knots, state, jnp.where(due, knots, state.initial_memory.knots))

    def _stock(self, memory: UtilityMemory, time_step: TimeStep) -> tuple[Float[Array, ""], Float[Array, ""]]:
        earned = power(self.discount, time_step.time - 1) * time_step.reward
        return jnp.where(time_step.time > 0, memory.so_far + earned, 0.0), power(self.discount, time_step.time)

    def _values(
        self, critic: AugmentedCritic, features: Float[Array, " H"], s: Array, c: Array, knots: Float[Array, " K"]
    ) -> Float[Array, " A"]:
        z = s + c * critic.quantiles(features, midpoints(self.training.num_action_quantiles))
        return expected_utility(self.risk, knots, z)


def utility_levels(risk: DistortionMeasure, count: int) -> Float[Array, " K"]:
    """Return t_k = h⁻¹(k/K)."""
    return risk.distort(jnp.arange(1, count + 1, dtype=jnp.float32) / count)


def utility_knots(risk: DistortionMeasure, atoms: Float[Array, " n"], count: int) -> Float[Array, " K"]:
    """Return b_k of a distribution of equally likely atoms; ∞ where t_k = 1."""
    levels = utility_levels(risk, count)
    return jnp.where(levels < 1.0 - NEXT_TO, sample_quantiles(atoms, levels), jnp.inf)


def expected_utility(risk: DistortionMeasure, knots: Float[Array, " K"], z: Float[Array, "N A"]) -> Float[Array, " A"]:
    """Return E[u(z)] of N equally likely returns, for every action."""
    levels, linear = utility_levels(risk, len(knots)), jnp.isinf(knots)
    slopes = 1.0 / (len(knots) * jnp.maximum(jnp.diff(levels, prepend=0.0), NEXT_TO))
    bends = jnp.maximum(-jnp.diff(slopes, append=0.0), 0.0)  # Δ_k
    b, most = jnp.where(linear, 0.0, knots), jnp.where(linear, jnp.inf, 0.0)
    below = jnp.mean(jnp.minimum(z[:, :, None] - b[None, None, :], most[None, None, :]), axis=0)
    return below @ bends + jnp.sum(bends * levels * b)
