"""The unit of the critics follows the returns, and what was learned is kept."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.agents.episodes import no_episodes
from riskpath.agents.learning import STEP, follow_unit, scales, update_target
from riskpath.types import EnvSpec
from tests.agents.clocks import START, clock_at

SPEC = EnvSpec(num_actions=2, observation_shape=(), num_states=3, max_episode_steps=2)
BOX = EnvSpec(num_actions=0, observation_shape=(2,), max_episode_steps=2, action_size=1)
SIZES: dict[str, Any] = {"batch_size": 2, "num_quantiles": 4, "num_target_quantiles": 4, "num_action_quantiles": 4}
TRAINING = rp.Training(**SIZES, target_update_rate=0.5, decay_starts=0.0, decay_ends=1.0)
NETWORK = rp.Network(hidden=(8,), history_size=4)
DISCRETE: dict[str, Any] = {"network": NETWORK, "training": TRAINING}
CONTINUOUS: dict[str, Any] = {"network": NETWORK, "training": TRAINING}
AGENTS: dict[str, Any] = {
    "IQN factored": rp.IQN("cvar:0.5", **DISCRETE),
    "IQN deep": rp.IQN("cvar:0.5", network=rp.Network(hidden=(8,), head="deep"), training=TRAINING),
    "IQN table": rp.IQN("cvar:0.5", network=rp.Network(head="table"), training=TRAINING),
    "CVaRDRL": rp.CVaRDRL("cvar:0.5", **DISCRETE),
    "TQL joint": rp.TQL("cvar:0.5", **DISCRETE),
    "TQL trajectory deep": rp.TQL(
        "cvar:0.5", critic="trajectory", network=rp.Network(hidden=(8,), head="deep"), training=TRAINING
    ),
    "TQL convolved table": rp.TQL("cvar:0.5", critic="convolved", network=rp.Network(head="table"), training=TRAINING),
    "Adaptive": rp.Adaptive("cvar:0.5", **DISCRETE),
    "Adaptive utility": rp.Adaptive("wang:-0.75", **DISCRETE),
    "IQTD3": rp.IQTD3("cvar:0.5", **CONTINUOUS),
    "TQLContinuous": rp.TQLContinuous("cvar:0.5", convolved_taus=4, **CONTINUOUS),
    "AdaptiveContinuous": rp.AdaptiveContinuous("cvar:0.5", **CONTINUOUS),
}
"""QRSRM is not among them: its critic has the return so far, in the unit of the critics, as an input."""


def spec_of(agent: Agent) -> EnvSpec:
    return BOX if agent.actions == "continuous" else SPEC


def first_step(spec: EnvSpec) -> rp.TimeStep:
    observation = jnp.asarray(1, jnp.int32) if spec.num_states else jnp.array([0.3, -0.4])
    return spec.first_time_step(observation, jnp.ones((spec.num_actions,), bool))


def with_unit(state: AgentState, unit: float, wanted: float) -> AgentState:
    """Return the state with a unit of the critics, after episodes whose returns ask for another one."""
    first = first_step(BOX if hasattr(state.params, "actor") else SPEC)
    episodes = no_episodes(first.observation[None], first.action_mask[None], 2)
    given = {"unit": unit, "deviation": wanted}
    episodes = dataclasses.replace(episodes, **{name: jnp.asarray(x, jnp.float32) for name, x in given.items()})
    return dataclasses.replace(state, episodes=episodes)


def learned(agent: Agent) -> AgentState:
    """Return a state whose networks and targets differ, and differ from fresh ones."""
    one, other = (agent.init(spec_of(agent), key=jax.random.key(i)) for i in (0, 1))
    noisy = lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape)
    is_weight = lambda x: eqx.is_inexact_array(x) and x.ndim > 1
    params, targets = (jax.tree.map(lambda x: noisy(x) if is_weight(x) else x, s.params) for s in (one, other))
    return dataclasses.replace(one, params=params, target_params=targets)


def predictions(agent: Any, state: AgentState) -> np.ndarray:
    """Return what networks and targets predict, in units of the return."""
    both = [dataclasses.replace(state, params=params) for params in (state.params, state.target_params)]
    first, taus = first_step(spec_of(agent)), jnp.array([0.1, 0.6])
    predict = eqx.filter_jit(agent.quantiles)
    return np.stack([predict(one, state.initial_memory, first, taus) for one in both])


REPEATED = (
    *("IQN factored", "IQN deep", "IQN table", "CVaRDRL", "TQL joint", "TQL trajectory deep"),
    *("Adaptive utility", "IQTD3", "TQLContinuous"),
)
"""Made of critics that other agents have."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in REPEATED else []) for name in AGENTS]
)
def test_predicted_returns_stay_when_the_unit_changes(name):
    # Of adaptive agents at the start, where the context is 0 in every unit: features of other contexts are in units.
    agent = AGENTS[name]
    before = with_unit(learned(agent), 32.0, 256.0)
    expected = predictions(agent, before)
    assert np.ptp(expected) > 0
    for wanted in (256.0, 4.0):
        after = follow_unit(agent, with_unit(before, 32.0, wanted), START)
        assert after.episodes is not None
        assert float(after.episodes.unit) == wanted
        assert float(scales(agent.training, after)[0]) == pytest.approx(1 / wanted)
        np.testing.assert_allclose(predictions(agent, after), expected, rtol=1e-5)
        for part in ("initial_memory", "opt_state"):
            assert eqx.tree_equal(getattr(after, part), getattr(before, part))


@pytest.mark.parametrize("name", ["IQTD3", "AdaptiveContinuous", pytest.param("TQLContinuous", marks=pytest.mark.long)])
def test_actors_do_the_same_in_another_unit(name):
    agent = AGENTS[name]
    before = with_unit(learned(agent), 32.0, 256.0)
    after = follow_unit(agent, before, START)
    assert eqx.tree_equal(after.params.actor, before.params.actor)
    assert eqx.tree_equal(after.target_params.actor, before.target_params.actor)
    act = eqx.filter_jit(act_greedily)
    actions = [
        act(agent, state, state.initial_memory, first_step(BOX), key=jax.random.key(0)).action
        for state in (before, after)
    ]
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-6)
    assert float(jnp.abs(actions[0]).max()) > 1e-3


assert STEP == 2.0
FOLLOWS: dict[str, tuple[float | None, float, float, float]] = {  # reward_scale, wanted, share done, and the new unit
    "larger": (None, 64.1, 0, 64.1),
    "smaller": (None, 15.9, 0, 15.9),
    "right within a factor": (None, 63.9, 0, 32.0),
    "right within a factor, below": (None, 16.1, 0, 32.0),
    "nothing is known": (None, 0.0, 0, 32.0),
    "while learning rates are high": (None, 256.0, 0.5, 256.0),
    "once learning rates have fallen": (None, 256.0, 0.7, 32.0),
    "a factor is given": (0.1, 256.0, 0, 32.0),
}


@pytest.mark.parametrize("case", FOLLOWS)
def test_the_unit_follows_where_it_is_far_from_right_and_critics_can_still_learn(case):
    reward_scale, wanted, done, unit = FOLLOWS[case]
    training = dataclasses.replace(TRAINING, reward_scale=reward_scale)  # rates fall to a tenth
    agent = rp.IQN(network=rp.Network(head="table"), training=training)
    state = with_unit(learned(agent), 32.0, wanted)
    after = follow_unit(agent, state, clock_at(done))
    assert after.episodes is not None
    assert float(after.episodes.unit) == pytest.approx(unit)
    np.testing.assert_allclose(after.params.head.cells, 32.0 / unit * state.params.head.cells, rtol=1e-5)
    np.testing.assert_allclose(predictions(agent, after), predictions(agent, state), rtol=1e-5)


def test_without_episodes_there_is_no_unit_to_follow():
    agent = AGENTS["IQN table"]
    state = learned(agent)
    assert follow_unit(agent, state, START) is state


def test_targets_are_updated_in_the_new_unit():
    agent = AGENTS["IQN table"]
    state = with_unit(learned(agent), 32.0, 128.0)
    before, after = predictions(agent, state), predictions(agent, update_target(agent, state, START))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
    np.testing.assert_allclose(after[1], before.mean(axis=0), rtol=1e-4, atol=1e-4)  # at a rate of ½


def test_kappa_is_a_share_of_the_smaller_one_of_deviation_and_unit():
    agent = AGENTS["IQN table"]
    for unit, deviation, share in [(4.0, 8.0, 0.01), (4.0, 2.0, 0.005), (4.0, 1e-6, 1e-4), (4.0, 4.0, 0.01)]:
        state = with_unit(learned(agent), unit, deviation)
        assert float(scales(agent.training, state)[1]) == pytest.approx(share)  # in units


def test_the_utility_of_qrsrm_stays_in_units_of_the_return():
    agent = rp.QRSRM("cvar:0.5", pieces=4, utility_interval=3, **DISCRETE)
    state = with_unit(learned(agent), 32.0, 128.0)
    state = eqx.tree_at(lambda s: s.initial_memory.knots, state, jnp.arange(4.0))
    after = update_target(agent, state, clock_at(0.1))  # after 100 updates no estimate is due
    np.testing.assert_array_equal(after.initial_memory.knots, jnp.arange(4.0))  # in units of the return
