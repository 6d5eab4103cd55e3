"""Adaptive: the policy reacts to what it has earned, and so reaches the best value of the whole return that exists.

The critic predicts the law of the return to go by atoms θ_i of probability p_i. It sees a context x beside the
observation: a goal for CVaR (`goal_form.py`), the return so far for other measures (`utility_form.py`). With the
utility u_x of a return to go in that context,

    a = argmax_a Σ_i p_i u_x(θ_i(s, x, a))
    θ(s, x, a) ← r + γ θ′(s′, x′, a′),     a′ = argmax_a Σ_i p_i u_x′(θ_i(s′, x′, a))

by the quantile Huber loss, and the expected utility itself by a squared loss, which has no bias where the law jumps:

    Σ_i p_i u_x(θ_i)  ←  Σ_i p_i u_x(r + γ θ′_i)

A stored transition trains several contexts at once: what was done does not depend on them, only what is best does.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from riskpath.agents.agent import ActorOutput, Agent, AgentState, HistoryMemory, empty_history
from riskpath.agents.config import Training
from riskpath.agents.episodes import Units
from riskpath.agents.goal_form import GoalForm, parts, serves
from riskpath.agents.learning import epsilon_greedy, gradient_step, masked_argmax, new_state, scales
from riskpath.agents.utility_form import ATOMS, UtilityForm
from riskpath.nn.law_critic import LawCritic, cell_quantiles, cells
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.nn.network import Network
from riskpath.risk.compose import as_risk
from riskpath.risk.measures import CVaR, RiskMeasure
from riskpath.types import EnvSpec, Key, TimeStep, Transition, Window
from riskpath.validation import require_counts


class Learned(eqx.Module):
    """The critic, and the plan that follows from it; gradients do not change the plan."""

    critic: LawCritic
    plan: Any


class Memory(eqx.Module):
    """What an episode carries along."""

    context: Any
    history: HistoryMemory | tuple[()]


class Adaptive(Agent):
    """Maximises any risk measure of the whole return by reacting to the rewards received; discrete actions."""

    risk: RiskMeasure = eqx.field(default=CVaR(0.25), converter=as_risk)
    """β. After training for a CVaR, any other level can be chosen: `run.policy(risk=…)`."""
    discount: float | Array = 1.0
    """γ."""
    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks; with `window` the critic sees a history of observations and actions."""
    training: Training = Training(batch_size=64, learning_rate_decay=0.02)
    """Training hyperparameters."""
    contexts: int = eqx.field(static=True, default=4)
    """Contexts for which each sample is used."""
    utility_weight: float | Array = 1.0
    """Weight of the squared loss of the expected utility, relative to that of the quantiles."""
    selection_episodes: int = eqx.field(static=True, default=1_000)
    """Held-out episodes by which the best member of the population is chosen after training; 0 to trust the critic."""

    def __check_init__(self):
        require_counts(contexts=self.contexts)
        require_counts(0, selection_episodes=self.selection_episodes)

    @property
    def form(self) -> GoalForm | UtilityForm:
        """Return how the measure is maximised: by goals for the mean and CVaR, else by utilities."""
        return GoalForm(self.risk) if serves(self.risk) else UtilityForm(self.risk)

    def window(self, spec: EnvSpec) -> int:
        """Return the length of a history if the network has a window, else 0."""
        return self.network.history_length(spec) if self.network.window else 0

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh critic; the memory is the context and, with a window, the history."""
        length, form = self.window(spec), self.form
        critic = LawCritic(self.network, spec, length, self.training.online_taus, form.context_size, key=key)
        plan = form.plan()
        history = empty_history(spec, length) if length else ()
        return new_state(Learned(critic, plan), Memory(form.first(plan, jnp.zeros((), jnp.int32)), history))

    def act(
        self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, epsilon: Float[Array, ""]
    ) -> ActorOutput:
        """Return the action with the best expected utility, or a random one.

        A training episode starts in a random context half of the time, a greedy one as the plan says.
        """
        member_key, coin_key, context_key, act_key = jax.random.split(key, 4)
        plan, form, units = state.params.plan, self.form, self.units(state)
        planned = form.first(plan, jax.random.categorical(member_key, jnp.log(plan.weights)).astype(jnp.int32))
        drawn = form.explore(plan, units, key=context_key)
        explore = (epsilon > 0) & (jax.random.uniform(coin_key) < 0.5)
        first = jax.tree.map(lambda a, b: jnp.where(explore, a, b), drawn, planned)
        memory = self._advance(memory, time_step, first)
        _, utility = self._evaluate(
            plan, units, state.params.critic, self._features(state.params.critic, memory, time_step), memory.context
        )
        return ActorOutput(epsilon_greedy(utility, time_step.action_mask, key=act_key, epsilon=epsilon), memory)

    def learn(self, state: AgentState, batch: Any, *, key: Key) -> tuple[AgentState, dict[str, Array]]:
        """Take one gradient step on the critic."""
        t, form, (scale, kappa) = self.training, self.form, scales(self.training, state)
        plan, target = state.params.plan, state.target_params.critic
        levels, probs = cells(t.online_taus)
        units = self.units(state)

        def loss(params: Learned, sample: tuple[Any, Key]) -> Float[Array, ""]:
            window, key = sample
            step: Transition = window.transition if isinstance(window, Window) else window
            now, online = _both(params.critic, window)
            online, (_, delayed) = jax.lax.stop_gradient(online), _both(target, window)

            def one(context: Any, following: Any) -> Float[Array, ""]:
                _, values = self._evaluate(plan, units, state.params.critic, online, following)
                best = masked_argmax(values, step.next_action_mask)
                future, _ = self._evaluate(plan, units, target, delayed, following)
                future = jnp.where(step.terminated, 0.0, self.discount * future[:, best])
                aim = jax.lax.stop_gradient(scale * step.reward + future)
                law = params.critic(now, form.describe(context, units))[:, step.action]
                value, wanted = (probs @ form.utility(context, z, plan, units) for z in (law, aim))
                quantile = quantile_huber(law, levels, aim, kappa, probs) / t.online_taus
                return quantile + self.utility_weight * (value - wanted) ** 2

            contexts = form.relabel(step, self.contexts, plan, units, self.discount, key=key)
            return jnp.mean(jax.vmap(one)(*contexts))

        keys = jax.random.split(key, t.batch_size)
        return gradient_step(state, loss, t, (batch, keys))

    def quantiles(
        self, state: AgentState, memory: Memory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the predicted quantiles of the return to go, at the start those of the whole return."""
        law, _, _ = self._predict(state, memory, time_step)
        return cell_quantiles(law, taus) / scales(self.training, state)[0]

    def estimate(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, " A"]:
        """Return β of the return to go; for CVaR with the goal as its threshold."""
        law, utility, context = self._predict(state, memory, time_step)
        _, probs = cells(self.training.online_taus)
        estimate = self.form.estimate(context, utility, probs @ law, self.units(state))
        if estimate is None:
            levels = self.risk.distort(midpoints(self.training.act_taus))
            estimate = jnp.mean(cell_quantiles(law, levels), axis=0)
        return estimate / scales(self.training, state)[0]

    def population(self) -> tuple[int, int]:
        """Return how many first goals or members are compared, and on how many episodes."""
        return self.form.members, self.selection_episodes

    def with_members(self, state: AgentState, weights: Float[Array, " M"]) -> AgentState:
        """Return a state in which an episode is played by each member with these probabilities."""
        return eqx.tree_at(lambda s: s.params.plan.weights, state, weights)

    def weights(self, state: AgentState) -> Float[Array, " M"]:
        """Return the probabilities with which an episode is played by each member."""
        return state.params.plan.weights

    def can_serve(self, risk: RiskMeasure) -> bool:
        """Tell whether the critic for all goals serves another measure: another level of CVaR."""
        if not (serves(self.risk) and serves(risk)):
            return risk == self.risk
        (w, level), (other_w, other) = parts(self.risk), parts(risk)
        return bool(np.isclose((1 - w) * level / w, (1 - other_w) * other / other_w))

    def refresh(self, state: AgentState) -> AgentState:
        """Return the state with a plan that follows from the critic."""
        critic, episodes, units = state.params.critic, state.episodes, self.units(state)
        assert episodes is not None
        masks = episodes.first_action_mask
        features = jax.vmap(lambda o, m: self._first_features(critic, o, m))(episodes.first_observation, masks)
        levels = midpoints(ATOMS)

        def root(context: Any) -> tuple[Float[Array, " K"], Float[Array, ""]]:
            """Return the law and the expected utility of the best first actions, over all starts."""

            def start(features: Float[Array, " H"], mask: Any) -> Any:
                law, values = self._evaluate(state.params.plan, units, critic, features, context)
                best = masked_argmax(values, mask)
                return cell_quantiles(law[:, best], levels), values[best]

            laws, values = jax.vmap(start)(features, masks)
            return jnp.sort(laws.ravel())[laws.shape[0] // 2 :: laws.shape[0]], jnp.mean(values)

        plan = self.form.refresh(state.params.plan, root, units)
        return eqx.tree_at(lambda s: s.params.plan, state, plan)

    def units(self, state: AgentState) -> Units:
        """Return the unit of the critic and the range of returns."""
        return Units.of(state.episodes, 1.0 / scales(self.training, state)[0])

    def _evaluate(
        self, plan: Any, units: Units, critic: LawCritic, features: Float[Array, " H"], context: Any
    ) -> tuple[Float[Array, "N A"], Float[Array, " A"]]:
        """Return the law of the return to go and its expected utility for each action."""
        law = critic(features, self.form.describe(context, units))
        return law, cells(self.training.online_taus)[1] @ self.form.utility(context, law, plan, units)

    def _predict(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, "N A"], Float[Array, " A"], Any]:
        """Return law, expected utility and context; at the start those of the likeliest member."""
        plan = state.params.plan
        memory = self._advance(memory, time_step, self.form.first(plan, jnp.argmax(plan.weights).astype(jnp.int32)))
        features = self._features(state.params.critic, memory, time_step)
        law, utility = self._evaluate(plan, self.units(state), state.params.critic, features, memory.context)
        return law, utility, memory.context

    def _advance(self, memory: Memory, time_step: TimeStep, first: Any) -> Memory:
        """Return the memory with the context and the history of this step."""
        moved = self.form.advance(memory.context, time_step.reward, self.discount)
        context = jax.tree.map(lambda a, b: jnp.where(time_step.time > 0, a, b), moved, first)
        return Memory(context, memory.history.extend(time_step) if isinstance(memory.history, HistoryMemory) else ())

    def _features(self, critic: LawCritic, memory: Memory, time_step: TimeStep) -> Float[Array, " H"]:
        """Return the features of what was observed."""
        if not isinstance(history := memory.history, HistoryMemory):
            return critic.inputs(time_step.observation, None)
        return critic.inputs.last(history.observation, history.prev_action, history.valid)

    def _first_features(self, critic: LawCritic, observation: Shaped[Array, "*obs"], mask: Any) -> Float[Array, " H"]:
        """Return the features of a first observation."""
        spec = critic.inputs.encoder.spec
        history = empty_history(spec, self.window(spec)) if self.window(spec) else ()
        time_step = spec.first_time_step(observation, mask)
        memory = Memory((), history.extend(time_step) if isinstance(history, HistoryMemory) else ())
        return self._features(critic, memory, time_step)


def _both(critic: LawCritic, sample: Window | Transition) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """Return the features before and after a step."""
    if isinstance(sample, Window):
        return critic.inputs.both(sample)
    return critic.inputs(sample.observation, None), critic.inputs(sample.next_observation, None)
