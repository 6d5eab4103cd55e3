"""Change the unit of critics: multiply their outputs exactly by a factor, so that nothing learned is lost."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from riskpath.nn.atom_critic import AtomCritic
from riskpath.nn.context_network import ContextNetwork
from riskpath.nn.heads import DeepHead, FactoredHead, Head, TableHead

Last = Head | ContextNetwork | AtomCritic
"""What ends with the layer that is multiplied."""


def rescale_critics(networks: Any, factor: Float[Array, ""]) -> Any:
    """Return networks whose critics predict `factor` times their former values; actors do not change."""
    if hasattr(networks, "critic"):  # the rest are actors
        return eqx.tree_at(lambda n: n.critic, networks, _rescale_all(networks.critic, factor))
    return _rescale_all(networks, factor)


def _rescale_all(critics: Any, factor: Float[Array, ""]) -> Any:
    ends_here = lambda x: isinstance(x, Head | ContextNetwork | AtomCritic)  # noqa: E731
    return jax.tree.map(lambda x: _rescale(x, factor) if ends_here(x) else x, critics, is_leaf=ends_here)


def _rescale(critic: Last, factor: Float[Array, ""]) -> Last:
    """Multiply the last layer; every critic is linear in it."""
    if isinstance(critic, TableHead):
        return eqx.tree_at(lambda h: h.cells, critic, factor * critic.cells)
    if isinstance(critic, AtomCritic) and not critic.in_units:
        return critic
    assert isinstance(critic, FactoredHead | DeepHead | ContextNetwork | AtomCritic)
    return eqx.tree_at(lambda h: h.out, critic, jax.tree.map(lambda x: factor * x, critic.out))
