"""AdaptivePPO: policy gradients for the risk of the whole return.

The policy π(a | s, c) and the critic V(s, c) see the goal c, which is what is still needed (`goals.py`). A step earns
what it adds to the utility of the goal, u_c(Z) = λ Z − (c − Z)⁺:

    r̃_t = u_c(r_t) − u_c(0) = λ r_t + (c_t)⁺ − (c_t − r_t)⁺,     c_{t+1} = (c_t − r_t)/γ

An episode with the return Z and the first goal b earns λ Z + (b)⁺ − (b − Z)⁺, so PPO (`ppo.py`) on r̃ maximises

    CVaR_η = max_b { b − E[(b − Z)⁺]/η }

at the best b, and mixtures with the mean by λ. Every training episode draws its first goal: half of them from all goals
that are useful for some level, half near the best goal of a level. So one policy serves all levels. The critic predicts
the best b; after training, held-out episodes compare several goals near it.

For any other measure with the influence function u, the context is the return so far, a step earns
(u(R_{0:t}) − u(R_{0:t−1}))/γᵗ, and u follows the returns that were played (`utilities.py`, `played_returns.py`).

Returns of early episodes may be far from all later ones. Three rules keep them from dominating the critic or a batch:
the unit of goals and values follows the latest returns, the loss of large value errors is linear, and extreme
advantages are clipped.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.context_agent import ContextAgent, Memory, clock_of
from riskpath.agents.adaptive.floored_goals import FlooredGoals, serves_floor
from riskpath.agents.adaptive.goals import GoalObjective, serves
from riskpath.agents.adaptive.played_returns import PlayedReturns, with_played
from riskpath.agents.adaptive.utilities import ATOMS, UtilityObjective
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.episodes import Units
from riskpath.agents.learning import in_unit
from riskpath.agents.rollout_agent import PolicyAgent, RolloutTraining, clipped_epochs, take
from riskpath.errors import RiskpathError
from riskpath.nn.losses import midpoints
from riskpath.nn.network import Network
from riskpath.nn.policy_networks import Categorical, ContextPolicy, Gaussian, Seen
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition

STEP = 2.0
"""The unit is left alone as long as it is right within this factor."""
SETTLED = 0.5
"""Fraction of the training after which the unit is fixed."""
BEYOND = 0.5
"""How far goals reach beyond the latest returns, in units."""
OFFSETS = (0.0, *(sign / part for part in (32, 16, 8, 4, 2) for sign in (-1, 1)))
"""First goals that are compared after training, in units from the critic's own; it is less exact than `Adaptive`'s."""
FLOOR_OFFSETS = (0.0, -0.125, 0.125, -0.5, 0.5)
"""The same for every share of a floor."""
EXTREME = 8.0
"""The factor on the mean absolute advantage at which advantages are clipped, twice."""


class AdaptivePPO(ContextAgent, PolicyAgent):
    """Maximises any risk measure of the whole return by policy gradients; discrete or continuous actions."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks of policy and critic."""
    training: RolloutTraining = RolloutTraining(  # pyright: ignore[reportIncompatibleVariableOverride]
        final_learning_rate=1e-5, entropy_weight=0.01, final_entropy_weight=0.0, value_huber=2.0
    )
    """Training hyperparameters."""

    def __check_init__(self):
        if self.floor is not None and not serves_floor(self.risk, self.floor.measure):
            both = f"{self.risk} with a floor under {self.floor.measure}"
            raise RiskpathError(f"AdaptivePPO takes one CVaR in objective and floor together: use Adaptive for {both}")
        if self.network.window:
            raise RiskpathError("AdaptivePPO has no history: leave network.window out")

    @property
    def objective(self) -> Any:
        """Return an objective of goals for mean, CVaR and their mixtures, else the utility objective."""
        if self.floor is not None:
            return FlooredGoals(self.risk, self.floor, FLOOR_OFFSETS)
        return GoalObjective(self.risk, OFFSETS) if serves(self.risk) else UtilityObjective(self.risk)

    def units(self, state: AgentState) -> Units:
        """Return the unit of the networks, and the range of the latest returns."""
        episodes, unit = state.episodes, jnp.ones(()) if state.episodes is None else state.episodes.unit
        units = Units.of(episodes, unit)
        if episodes is None:
            return units
        known = episodes.count >= len(episodes.ring)
        low = jnp.where(known, jnp.min(episodes.ring) - BEYOND * unit, units.low)
        high = jnp.where(known, jnp.max(episodes.ring) + BEYOND * unit, units.high)
        return dataclasses.replace(units, low=low, high=high)

    def training_start(self, state: AgentState, draws: Float[Array, "2"]) -> Any:
        """Return a useful goal half of the time, else one near the best one of a level."""
        plan, units, objective = state.params.plan, self.units(state), self.objective
        drawn = objective.explore(plan, units, draws[1])
        near = objective.near(plan, units, jnp.stack([2.0 * draws[0] - 1.0, draws[1]]))
        return jax.tree.map(lambda a, b: jnp.where(draws[0] < 0.5, a, b), drawn, near)

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; the memory is the context."""
        objective = self.objective
        plan, size = objective.plan(), objective.context_size
        played = PlayedReturns.none(objective.candidates) if isinstance(objective, UtilityObjective) else ()
        params = ContextPolicy(self.network, spec, size, self.training.log_std, plan, played=played, key=key)
        first = Memory(objective.first(plan, jnp.zeros((), jnp.int32)), ())
        return AgentState(params, (), self.training.optimiser.init(params), first)

    def act(self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action drawn from π(· | s, x), or the likeliest one if greedy."""
        goal_key, act_key = jax.random.split(key)
        memory = self.begin_or_advance(state, memory, time_step, key=goal_key, mode=mode)
        seen = self._see(state, memory.context, time_step.time)
        policy, value = state.params.of(time_step.observation, time_step.action_mask, seen)
        value = self.units(state).unit * self.within_reach(state, memory.context, value)
        action, taken = take(policy, value, time_step, key=act_key, mode=mode)
        return ActorOutput(action, memory, (taken, seen, memory.context))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of gradient steps on a rollout, then find the plan again."""
        steps, state = batch.steps, follow_unit(state, clock)
        unit = self.units(state).unit

        def outcome(step: Transition) -> tuple[Float[Array, ""], Float[Array, ""]]:
            """Return what a step earns, and the value after it."""
            _, _, context = step.extras
            after = self.objective.advance(context, step.reward, self.discount)
            seen = self._see(state, after, step.time + 1)
            _, value = state.params.of(step.next_observation, step.next_action_mask, seen)
            return self._added(state, context, step.reward / unit), self.within_reach(state, after, value)

        gains, later = jax.vmap(jax.vmap(outcome))(steps)
        state, metrics = clipped_epochs(
            self, state, as_stored, steps, gains, later, unit, clock, key=key, limit=without_extremes
        )
        return self.refresh(with_played(state, steps), clock), metrics

    def value(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, ""]:
        """Return β of the return to go; for CVaR with the goal of the likeliest candidate as its threshold."""
        context, units = self.likeliest(state, memory, time_step).context, self.units(state)
        utility = self._utility(state, context, time_step.observation, time_step.action_mask, time_step.time)
        return units.unit * self.objective.value(context, utility, state.params.plan, units)

    def refresh(self, state: AgentState, clock: Clock) -> AgentState:
        """Return the state with the best first goals by the critic, or the utilities that follow from the returns."""
        episodes, units, zero = state.episodes, self.units(state), jnp.zeros((), jnp.int32)
        played, old = state.params.played, state.params.plan
        assert episodes is not None

        def root(context: Any) -> tuple[Any, Float[Array, " S"]]:
            start = lambda observation, mask: self._utility(state, context, observation, mask, zero)
            expected = jax.vmap(start)(episodes.first_observation, episodes.first_action_mask)
            if not isinstance(played, PlayedReturns):
                return (), expected
            return played.quantiles(context.candidate, midpoints(ATOMS)) / units.unit, expected

        plan = self.objective.refresh(old, root, units, clock.done)
        if isinstance(played, PlayedReturns):
            plan = jax.tree.map(lambda new, before: jnp.where(played.known, new, before), plan, old)
        return eqx.tree_at(lambda s: s.params.plan, state, plan)

    def within_reach(self, state: AgentState, context: Any, value: Float[Array, ""]) -> Float[Array, ""]:
        """Return V(s, x) within u_x(Z) − u_x(0) of the returns to go that were seen, so that errors do not build up."""
        if state.episodes is None:
            return value
        ends = jnp.stack(state.episodes.reach) / self.units(state).unit
        least, most = self._added(state, context, ends)
        return jnp.clip(value, least, most)

    def _added(self, state: AgentState, context: Any, returns: Float[Array, "*N"]) -> Float[Array, "*N"]:
        """Return u_x(Z) − u_x(0) of returns to go, in units."""
        utility = lambda z: self.objective.utility(context, z, state.params.plan, self.units(state))
        return utility(returns) - utility(jnp.zeros_like(returns))

    def _utility(self, state: AgentState, context: Any, observation: Any, mask: Any, time: Int[Array, ""]) -> Array:
        """Return E[u_x(Z)] = V(s, x) + u_x(0), in units."""
        _, value = state.params.of(observation, mask, self._see(state, context, time))
        nothing = self.objective.utility(context, jnp.zeros(()), state.params.plan, self.units(state))
        return self.within_reach(state, context, value) + nothing

    def _see(self, state: AgentState, context: Any, time: Int[Array, ""]) -> Seen:
        return Seen(self.encode(state, context, time), clock_of(state, time))


def as_stored(params: ContextPolicy, step: Transition) -> tuple[Categorical | Gaussian, Float[Array, ""]]:
    """Return the policy and the value at a step, from the context as it was seen then."""
    taken, seen, _ = step.extras
    return params.of(step.observation, taken.mask, seen)


def follow_unit(state: AgentState, clock: Clock) -> AgentState:
    """Return the state in the unit of the latest returns; what the critic predicts stays the same."""
    if state.episodes is None:
        return state
    old, wanted = state.episodes.unit, state.episodes.wanted_unit
    near = (wanted < STEP * old) & (old < STEP * wanted)
    return in_unit(state, jnp.where((wanted <= 0) | near | (clock.done > SETTLED), old, wanted))


def without_extremes(advantages: Float[Array, "T E"]) -> Float[Array, "T E"]:
    """Return advantages clipped to a multiple of their mean size, twice, because extremes enlarge that mean."""
    for _ in range(2):
        most = EXTREME * jnp.mean(jnp.abs(advantages))
        advantages = jnp.clip(advantages, -most, most)
    return advantages
