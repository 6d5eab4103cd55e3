"""Critics in another unit: every output is multiplied, and nothing else changes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.return_critic import LawCritic
from riskpath.nn.context_network import ContextNetwork
from riskpath.nn.critics import Actor, make_twins
from riskpath.nn.rescaling import rescale_critics
from riskpath.types import EnvSpec
from tests.nn.test_heads import head_and_features

SPEC, CONTEXT, KEY = EnvSpec(3, (), num_states=5, max_episode_steps=6), 4, jax.random.key(0)
NETWORK, FACTOR = rp.Network(hidden=(8, 8)), jnp.asarray(4.0)


@pytest.mark.parametrize("kind", ["factored", "deep", "table"])
def test_every_output_of_a_rescaled_head_is_multiplied(kind):
    (head, features), taus = head_and_features(kind), jnp.array([0.05, 0.3, 0.99])
    networks = {"critics": (head, None), "other": jnp.ones(2)}
    rescaled = rescale_critics(networks, FACTOR)
    other = rescaled["critics"][0]
    np.testing.assert_allclose(other(features, taus), 4 * head(features, taus), rtol=1e-6)
    np.testing.assert_allclose(other.mean(features, taus), 4 * head.mean(features, taus), rtol=1e-5)
    one = jnp.asarray(1, jnp.int32)
    np.testing.assert_allclose(
        other.of_action(features, taus, one), 4 * head.of_action(features, taus, one), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(rescaled["other"], networks["other"])


@pytest.mark.parametrize("twins", [1, 2], ids=["one", "stacked"])
def test_every_atom_of_a_rescaled_law_is_multiplied(twins):
    make = lambda key: LawCritic(NETWORK, SPEC, 0, 6, CONTEXT, key=key)
    critics = make(KEY) if twins == 1 else eqx.filter_vmap(make)(jax.random.split(KEY, twins))

    def laws(critics: Any) -> np.ndarray:
        law = lambda z: z(z.inputs(jnp.int32(2), jnp.asarray(0.5)), jnp.linspace(-1.0, 1.0, CONTEXT))
        return np.asarray(law(critics) if twins == 1 else eqx.filter_vmap(law)(critics))

    np.testing.assert_allclose(laws(rescale_critics(critics, FACTOR)), 4 * laws(critics), rtol=1e-6)
    assert np.ptp(laws(critics)) > 0


class Networks(eqx.Module):
    """Critics beside an actor, as agents with continuous actions have them."""

    critic: Any
    actor: Any


@pytest.mark.parametrize("kind", ["quantiles", "laws"])
def test_an_actor_stays_as_it_is(kind):
    x, action, taus = jnp.array([0.3, -0.2]), jnp.array([0.5]), jnp.array([0.1, 0.9])
    if kind == "quantiles":
        networks = Networks(make_twins(3, (8,), key=KEY), Actor(2, (8,), 1, key=KEY))
        outputs = lambda n: np.stack([z.quantiles(x, action, taus) for z in n.critic])
    else:
        first, second, third = (ContextNetwork(NETWORK, SPEC, 0, 2, 3, key=jax.random.key(i)) for i in range(3))
        networks = Networks((first, second), third)
        outputs = lambda n: np.stack([z(z.inputs(jnp.int32(2), jnp.zeros(())), x) for z in n.critic])
    rescaled = rescale_critics(networks, FACTOR)
    np.testing.assert_allclose(outputs(rescaled), 4 * outputs(networks), rtol=1e-5, atol=1e-6)
    assert eqx.tree_equal(rescaled.actor, networks.actor)
