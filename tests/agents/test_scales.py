"""No units to tell: rewards in another unit, or with a constant per episode, give the same policies."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.abilities import Quantiles
from riskpath.agents.episodes import no_episodes
from riskpath.agents.learning import new_state, scales
from riskpath.agents.replay_buffer import unpack
from riskpath.envs.environment import Environment
from riskpath.types import EnvSpec

SIZES: dict[str, Any] = {"num_quantiles": 4, "num_target_quantiles": 4, "num_action_quantiles": 4}
SIZES |= {"batch_size": 4, "buffer_size": 400, "learning_starts": 0}
NETWORK = rp.Network(hidden=(8,), history_size=4, window=2)
TRAINING = rp.Training(**SIZES, learning_rate=1e-2, target_update_interval=20)
CONTINUOUS = rp.Training(**SIZES, train_freq=2)
EXPLORING: dict[str, Any] = {"network": NETWORK, "training": TRAINING, "exploration": rp.EpsilonGreedy(final_eps=0.25)}
AGENTS = {
    "IQN": rp.IQN(rp.CVaR(0.25), **EXPLORING),
    "CVaRDRL": rp.CVaRDRL(rp.CVaR(0.25), **EXPLORING),
    "TQL": rp.TQL(rp.CVaR(0.25), **EXPLORING),
    "IQTD3": rp.IQTD3(rp.CVaR(0.25), network=NETWORK, training=CONTINUOUS),
}


class Push(Environment):
    """Three pushes; strong ones pay more on average, but not always."""

    unit: jax.Array = eqx.field(default=1.0, converter=jnp.asarray)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(num_actions=0, observation_shape=(1,), action_size=1, max_episode_steps=3)

    def reset(self, key: Any) -> Any:
        return jnp.zeros((1,)), jnp.zeros(())

    def step(self, key: Any, state: Any, action: Any) -> Any:
        state = state + 1
        reward = self.unit * (0.3 + action[0] * jax.random.normal(key))
        return state[None], state, reward, state >= 3, jnp.zeros((), bool)

    def action_mask(self, state: Any) -> Any:
        return jnp.ones((0,), bool)


def years(unit: float = 1.0, bonus: float = 0.0) -> rp.FiniteMDP:
    """Return two years, each with shares or bonds; `bonus` is paid once, at the end."""
    shares, bonds = [(0.8, 40.0), (0.2, -10.0)], [(1.0, 5.0)]
    return rp.FiniteMDP.from_outcomes(
        {
            (year, name): [(prob, unit * (gain + last * bonus), following) for prob, gain in asset]
            for year, following, last in (("year 1", "year 2", 0.0), ("year 2", "end", 1.0))
            for name, asset in (("shares", shares), ("bonds", bonds))
        },
        start="year 1",
    )


def stored_actions(run: rp.Run) -> np.ndarray:
    """Return the actions in the replay buffer."""
    store = run.lanes.store
    return np.asarray(jax.vmap(jax.vmap(lambda row: unpack(store.example, row)))(store.rows[: store.num_added]).action)


def predicted(run: rp.Run) -> np.ndarray:
    """Return the predicted quantiles at the start of an episode."""
    agent, state = run.agents[0], jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, run.lanes.agent_state)
    first = run.spec.first_time_step(state.episodes.first_observation[0], state.episodes.first_action_mask[0])
    assert isinstance(agent, Quantiles)
    return np.asarray(agent.quantiles(state, state.initial_memory, first, jnp.array([0.1, 0.5, 0.9])))


@pytest.mark.long  # the test below and test_actor_critic.py ask the same of a table of IQN and of IQTD3
@pytest.mark.parametrize("name", AGENTS)
def test_rewards_times_1024_give_the_same_decisions_bit_for_bit(name, unchecked):
    environments = [Push(), Push(1024.0)] if name == "IQTD3" else [years(), years(1024.0)]
    one, other = (rp.train(AGENTS[name], env, steps=200, num_envs=2) for env in environments)
    assert len(np.unique(stored_actions(one)[20:])) > 1  # it does not do the same thing all the time
    np.testing.assert_array_equal(stored_actions(one), stored_actions(other))
    for a, b in zip(
        *(jax.tree.leaves(eqx.filter(r.lanes.agent_state.params, eqx.is_array)) for r in (one, other)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert np.any(predicted(one) != 0)
    np.testing.assert_array_equal(1024 * predicted(one), predicted(other))
    np.testing.assert_array_equal(1024 * one.estimates(), other.estimates())


@pytest.mark.long  # test_actor_critic.py and the test above compare units
def test_rewards_in_any_unit_or_with_a_constant_per_episode_give_the_same_policies(unchecked):
    """With rewards around 1 and kappa = 1, the former default, critics would learn expectiles, and choose shares."""
    problems = [years(), years(1024.0), years(0.01), years(bonus=300.0), years(bonus=-300.0)]
    training = rp.Training(
        learning_starts=200, learning_rate=0.05, final_learning_rate=5e-4, decay_ends=1.0,
        batch_size=16, num_quantiles=16, num_target_quantiles=16, num_action_quantiles=16,
    )  # fmt: skip
    agents = [
        rp.IQN(rp.CVaR(level), 1.0, rp.Network(head="table"), training, exploration=rp.EpsilonGreedy(final_eps=0.25))
        for level in (0.25, 1.0)
        for _ in problems
    ]
    # So few steps do not suffice for every seed: of 64, four end with another policy in at least one setting.
    run = rp.train(agents, 2 * problems, steps=3_000, first_seed=1)
    for setting in range(len(agents)):
        policy = run.policy(setting=setting)
        first, memory = policy("year 1")
        chosen = (first, policy("year 2", memory, 0.0)[0])
        assert chosen == (("bonds", "bonds") if setting < len(problems) else ("shares", "shares"))
    one, other = (stored_actions(run)[:, setting] for setting in (0, 1))  # a power of two changes no bit
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one[20:])) > 1
    for leaf in jax.tree.leaves(eqx.filter(run.lanes.agent_state.params, eqx.is_array)):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    estimates = run.estimates()
    np.testing.assert_array_equal(1024 * estimates[0], estimates[1])


def test_given_values_take_precedence():
    empty = dataclasses.replace(
        new_state(rp.IQN(), ()), episodes=no_episodes(jnp.zeros((1, 1)), jnp.ones((1, 1), bool))
    )
    shown, gains = (jnp.zeros((2, 1)), jnp.ones((2, 1), bool)), jnp.array([100.0, 140.0])
    episodes = no_episodes(*shown).add(gains, gains, jnp.array([0, 0]), jnp.array([True, True]), *shown, 1.0)
    seen = eqx.tree_at(lambda s: s.episodes, empty, episodes)
    cases = [  # state, kappa, reward_scale, and then the factor and kappa in the critics' units
        (new_state(rp.IQN(), ()), None, None, 1.0, 0.01),
        (empty, None, None, 1.0, 1e-4),
        (seen, None, None, 1 / 20, 0.01),
        (seen, 1.0, None, 1 / 20, 1 / 20),
        (seen, None, 0.5, 0.5, 0.1),
        (seen, 1.0, 0.01, 0.01, 0.01),
    ]
    for state, kappa, reward_scale, *expected in cases:
        found = scales(rp.Training(kappa=kappa, reward_scale=reward_scale), state)
        assert [float(x) for x in found] == pytest.approx(expected)
