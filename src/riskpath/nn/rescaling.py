"""Critics in another unit: their outputs are multiplied by a factor, exactly, so what was learned is kept."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from riskpath.nn.heads import DeepHead, FactoredHead, Head, TableHead
from riskpath.nn.law_critic import ContextNetwork


def rescale_critics(networks: Any, factor: Float[Array, ""]) -> Any:
    """Return networks in which every critic predicts `factor` times what it did; an actor stays as it is."""
    if hasattr(networks, "critic"):  # the rest are actors
        return eqx.tree_at(lambda n: n.critic, networks, _rescale_all(networks.critic, factor))
    return _rescale_all(networks, factor)


def _rescale_all(critics: Any, factor: Float[Array, ""]) -> Any:
    ends_here = lambda x: isinstance(x, Head | ContextNetwork)  # noqa: E731
    return jax.tree.map(lambda x: _rescale(x, factor) if ends_here(x) else x, critics, is_leaf=ends_here)


def _rescale(critic: Head | ContextNetwork, factor: Float[Array, ""]) -> Head | ContextNetwork:
    """Multiply the last layer; every critic is linear in it."""
    if isinstance(critic, TableHead):
        return eqx.tree_at(lambda h: h.cells, critic, factor * critic.cells)
    assert isinstance(critic, FactoredHead | DeepHead | ContextNetwork)
    return eqx.tree_at(lambda h: h.out, critic, jax.tree.map(lambda x: factor * x, critic.out))
