"""What every agent has in common: measures as texts, random keys that are used once, target updates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import EXPLORE, WARM_UP, act_greedily
from riskpath.agents.learning import update_target
from riskpath.agents.tql import Form
from riskpath.types import EnvSpec
from tests.agents.clocks import START

# Images, so that the encoder draws weights as well.
DISCRETE = EnvSpec(3, (5, 5, 3), max_episode_steps=6, pixels=True)
CONTINUOUS = EnvSpec(0, (5, 5, 3), max_episode_steps=6, action_size=2, pixels=True)
SMALL: dict[str, Any] = {"batch_size": 2, "num_quantiles": 3, "num_target_quantiles": 3, "num_action_quantiles": 4}
NETWORK = rp.Network(hidden=(4,), history_size=3)
FORMS: tuple[Form, ...] = ("joint", "trajectory", "convolved")
SETTINGS: dict[str, Any] = {"network": NETWORK, "training": rp.Training(**SMALL)}
CONTINUOUS_SETTINGS: dict[str, Any] = {"network": NETWORK, "training": rp.Training(**SMALL)}
AGENTS: dict[str, Any] = {
    "IQN": rp.IQN("cvar:0.3", **SETTINGS),
    "QRDQN": rp.QRDQN("cvar:0.3", **SETTINGS),
    "C51": rp.C51("cvar:0.3", **SETTINGS),
    "CVaRDRL": rp.CVaRDRL("cvar:0.3", **SETTINGS),
    "QRSRM": rp.QRSRM("cvar:0.3", **SETTINGS),
    **{f"TQL {form}": rp.TQL("cvar:0.3", critic=form, **SETTINGS) for form in FORMS},
    "DSAC": rp.DSAC("cvar:0.3", **CONTINUOUS_SETTINGS),
    "IQTD3": rp.IQTD3("cvar:0.3", **CONTINUOUS_SETTINGS),
    **{f"TQLContinuous {form}": rp.TQLContinuous("cvar:0.3", critic=form, **CONTINUOUS_SETTINGS) for form in FORMS},
}
REPEATED = (
    *("QRDQN", "C51", "CVaRDRL", "QRSRM", "TQL joint", "TQL trajectory"),
    *("IQTD3", "TQLContinuous joint", "TQLContinuous trajectory", "TQLContinuous convolved"),
)
"""Made of parts that other agents have; test_losses.py and test_atom_agents.py train them."""
every_agent = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in REPEATED else []) for name in AGENTS]
)


def spec_of(agent: rp.Agent) -> EnvSpec:
    return CONTINUOUS if agent.actions == "continuous" else DISCRETE


def first_step(spec: EnvSpec) -> rp.TimeStep:
    observation = jax.random.randint(jax.random.key(7), spec.observation_shape, 0, 256).astype(jnp.uint8)
    return spec.first_time_step(observation, jnp.ones((spec.num_actions,), bool))


@every_agent
def test_random_keys_are_used_once(name):
    agent = AGENTS[name]
    spec = spec_of(agent)
    with jax.debug_key_reuse(True):
        init_key, act_key, explore_key = jax.random.split(jax.random.key(0), 3)
        state = agent.init(spec, key=init_key)
        act = eqx.filter_jit(agent.act)  # the keys inside are checked, too
        act(state, state.initial_memory, first_step(spec), key=act_key, mode=EXPLORE)
        act(state, state.initial_memory, first_step(spec), key=explore_key, mode=WARM_UP)


@every_agent
def test_different_parts_of_a_network_start_with_different_weights(name):
    state = AGENTS[name].init(spec_of(AGENTS[name]), key=jax.random.key(0))
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(state.params, eqx.is_array)) if leaf.size > 3]
    shared = [
        (a.shape, b.shape)
        for i, a in enumerate(arrays)
        for b in arrays[:i]
        if a.size == b.size and (a.ravel() == b.ravel()).all() and a.any()
    ]
    assert shared == []


@every_agent
def test_the_estimate_is_the_measure_of_the_quantiles(name):
    agent = AGENTS[name]
    spec = spec_of(agent)
    state = agent.init(spec, key=jax.random.key(0))
    levels = jnp.asarray([0.0375, 0.1125, 0.1875, 0.2625])  # 0.3 times the midpoints of four levels
    shown = (state, state.initial_memory, first_step(spec))
    quantiles = eqx.filter_jit(agent.quantiles)(*shown, levels)
    estimate = eqx.filter_jit(agent.estimate)(*shown)
    assert quantiles.shape == (4, spec.num_actions or 1)
    np.testing.assert_allclose(estimate, quantiles.mean(axis=0), rtol=1e-5)
    output = eqx.filter_jit(act_greedily)(agent, *shown, key=jax.random.key(1))
    if spec.num_actions and name in ("IQN", "TQL joint", "TQL trajectory"):
        assert int(output.action) == int(np.argmax(estimate))


@pytest.mark.parametrize(("rate", "share"), [(1.0, 1.0), (0.25, 0.25), (0.0, 0.0)])
def test_targets_follow_by_the_rate_of_the_configuration(rate, share):
    agent = eqx.tree_at(lambda a: a.training.target_update_rate, AGENTS["IQN"], jnp.asarray(rate))
    old, new = (agent.init(DISCRETE, key=jax.random.key(seed)) for seed in (0, 1))
    state = eqx.filter_jit(update_target)(agent, eqx.tree_at(lambda s: s.target_params, new, old.params), START)
    for target, before, after in zip(
        *(jax.tree.leaves(t) for t in (state.target_params, old.params, new.params)), strict=True
    ):
        before, after = np.asarray(before), np.asarray(after)
        np.testing.assert_allclose(target, before + share * (after - before), atol=1e-6)
        assert rate < 1.0 or np.array_equal(target, after)


@pytest.mark.parametrize(
    "make", [rp.IQN, rp.QRDQN, rp.C51, rp.CVaRDRL, rp.QRSRM, rp.TQL, rp.IQTD3, rp.DSAC, rp.TQLContinuous]
)
def test_texts_are_measures(make):
    assert eqx.tree_equal(make("cvar:0.1").risk, rp.CVaR(0.1))
    assert eqx.tree_equal(make(risk="cvar:0.1").risk, make(rp.CVaR(0.1)).risk)
