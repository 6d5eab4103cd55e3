"""Change the unit of critics: multiply their outputs exactly by a factor, so that nothing learned is lost."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from riskpath.nn.atom_critic import AtomCritic
from riskpath.nn.context_network import ContextNetwork
from riskpath.nn.heads import Head, TableHead
from riskpath.nn.policy_networks import FeatureNetwork

Last = Head | ContextNetwork | AtomCritic | FeatureNetwork
"""What ends with the layer that is multiplied."""


def rescale_critics(networks: Any, factor: Float[Array, ""]) -> Any:
    """Return networks whose critics predict `factor` times their former values; actors do not change."""
    if hasattr(networks, "critic"):  # the rest are actors
        return eqx.tree_at(lambda n: n.critic, networks, rescale_critics(networks.critic, factor))
    rescale = lambda x: _rescale(x, factor) if isinstance(x, Last) else x
    return jax.tree.map(rescale, networks, is_leaf=lambda x: isinstance(x, Last))


def _rescale(critic: Any, factor: Float[Array, ""]) -> Any:
    """Multiply the last layer; every critic is linear in it."""
    if isinstance(critic, AtomCritic) and not critic.in_units:
        return critic
    last = (lambda c: c.cells) if isinstance(critic, TableHead) else (lambda c: c.out)
    return eqx.tree_at(last, critic, jax.tree.map(lambda x: factor * x, last(critic)))
