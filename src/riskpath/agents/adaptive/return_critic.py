"""The critic of the adaptive agents: it also sees a context, and predicts the return distribution.

The distribution of the return to go has N atoms θ_i(s, x, a), one for each cell of [0, 1]. Cells are finer at both
ends, where most risk measures look: their edges are x²(3 − 2x) at N + 1 equally spaced x.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.nn.context_network import ContextNetwork, Inputs
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key


def cells(count: int) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return the middle levels and the probabilities of `count` cells of [0, 1]."""
    x = np.linspace(0.0, 1.0, count + 1)
    edges = x**2 * (3 - 2 * x)
    return jnp.asarray((edges[1:] + edges[:-1]) / 2, jnp.float32), jnp.asarray(np.diff(edges), jnp.float32)


def cell_quantiles(atoms: Float[Array, "N *A"], taus: Float[Array, " M"]) -> Float[Array, "M *A"]:
    """Return F⁻¹(τ) of atoms with the probabilities of `cells`, along the first axis."""
    _, widths = cells(atoms.shape[0])
    order = jnp.argsort(atoms, axis=0)
    upper = jnp.cumsum(widths[order], axis=0)
    above = jnp.sum(upper[None] < taus.reshape(-1, *[1] * atoms.ndim) - 1e-6, axis=1)
    return jnp.take_along_axis(jnp.sort(atoms, axis=0), jnp.minimum(above, len(atoms) - 1), axis=0)


def within_cells(atoms: Float[Array, " N"], draws: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return one return from each cell, by uniform draws; the quantile function is linear around every atom.

    An atom represents a whole cell. A target of atoms alone has less variance than the distribution they represent, and
    every backup would lose variance again.
    """
    levels, widths = cells(len(atoms))
    rise = jnp.diff(atoms) / jnp.diff(levels)
    around = (atoms[2:] - atoms[:-2]) / (levels[2:] - levels[:-2])
    slope = jnp.maximum(jnp.concatenate([rise[:1], around, rise[-1:]]), 0.0)
    return atoms + slope * widths * (draws - 0.5)


class LawCritic(eqx.Module):
    """θ(s, x, ·) for discrete actions."""

    net: ContextNetwork
    shape: tuple[int, int] = eqx.field(static=True)
    """N atoms, A actions."""

    def __init__(self, network: Network, spec: EnvSpec, length: int, atoms: int, context: int, *, key: Key):
        self.shape = (atoms, spec.num_actions)
        self.net = ContextNetwork(network, spec, length, context, atoms * spec.num_actions, key=key)

    @property
    def inputs(self) -> Inputs:
        """The part that sees the observation alone."""
        return self.net.inputs

    def __call__(self, features: Float[Array, " H"], context: Float[Array, " F"]) -> Float[Array, "N A"]:
        """Return θ of every action from the features of the observation and of the context."""
        return self.net(features, context).reshape(self.shape)

    def law(
        self, features: Float[Array, " H"], context: Float[Array, " F"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return θ of one action; on a GPU a sum over all actions is faster than an index, and so is its gradient."""
        chosen = jnp.arange(self.shape[1]) == action
        return jnp.sum(jnp.where(chosen, self(features, context), 0.0), axis=1)
