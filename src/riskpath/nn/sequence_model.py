"""Sequence models: they read the tokens of a history and return features of every prefix.

A model is chosen by the name of its class: `rp.Network(history="lstm")`. A class of your own registers when it is
defined, so its name works in the same place.
"""

import abc
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import Registered, concrete, simplify
from riskpath.types import Key

UNROLLED = 16
"""Sequences up to this length are unrolled; longer ones become a loop."""
S = TypeVar("S")


class SequenceModel(eqx.Module, Registered):
    """A causal model of token sequences. Tokens that are not valid stand at the front and must have no effect.

    It is called with the whole history, both when the agent acts and when it learns: features that were computed before
    an update would be stale.
    """

    @abc.abstractmethod
    def __init__(self, inputs: int, width: int, *, key: Key):
        """Make a model of tokens with `inputs` numbers that returns `width` features."""

    @abc.abstractmethod
    def __call__(self, tokens: Float[Array, "T I"], valid: Bool[Array, " T"]) -> Float[Array, "T H"]:
        """Return the features after each token; they depend on that token and on earlier valid ones only."""


def sequence_model(name: str) -> type[SequenceModel]:
    """Return the sequence model with this name; case, dashes and underscores do not matter."""
    known = {simplify(short): cls for short, cls in concrete(SequenceModel).items()}
    if not isinstance(name, str) or simplify(name) not in known:
        hint = did_you_mean(str(name), known)
        raise RiskpathError(f"history must be {' or '.join(known)}, got {name!r}{hint}")
    return known[simplify(name)]


def run_through(
    step: Callable[[S, Float[Array, " G"], bool], S], start: S, x: Float[Array, "T G"], valid: Bool[Array, " T"]
) -> S:
    """Return the states of a recurrent model after each token, stacked; invalid tokens leave the state as it is.

    `step(state, x, zeros)` is told where the state is known to be zero, so that it can leave out a product.
    """

    def advance(state: S, token: tuple[Array, Array], zeros: bool = False) -> tuple[S, S]:
        following = step(state, token[0], zeros)
        kept = jax.tree.map(lambda new, old: jnp.where(token[1], new, old), following, state)
        return kept, kept

    if len(x) > UNROLLED:
        return jax.lax.scan(advance, start, (x, valid), unroll=8)[1]
    # Split, not sliced: the gradient of a split is one concatenation, that of slices a sum of padded arrays.
    state, states = start, []
    for a, b in zip(jnp.split(x, len(x)), jnp.split(valid, len(valid)), strict=True):
        state, _ = advance(state, (a[0], b[0]), not states)
        states.append(state)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
