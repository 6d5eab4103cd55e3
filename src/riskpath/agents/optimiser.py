"""An Optax transformation of clipped gradients with a learning rate that decays during the training."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from riskpath.agents.clock import Clock, ramp
from riskpath.errors import RiskpathError, did_you_mean, short_repr

Transformation = str | Callable[[Any], optax.GradientTransformation]
"""The name of an optimiser in Optax, or a function of the learning rate that returns an Optax transformation."""


def as_transformation(given: Any) -> Transformation:
    """Return the name of an optimiser that is one of Optax, which can be stored, and another function as it is."""
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    of_optax: Any = getattr(optax, name, None)
    make = of_optax if isinstance(given, str) else given
    try:
        suits = isinstance(make(1e-3), optax.GradientTransformation)
    except Exception:  # whatever is wrong, the one line below says what is accepted
        suits = False
    if not suits:
        hint = did_you_mean(given, dir(optax)) if isinstance(given, str) else ""
        wanted = 'the name of an optimiser in Optax, such as "adamw", or a function of the learning rate'
        raise RiskpathError(f"gradient_transformation must be {wanted}, got {short_repr(given, 60)}{hint}")
    return name if isinstance(given, str) or given is of_optax else given


class Optimiser(eqx.Module):
    """Changes parameters by gradients: clipping, an Optax transformation, and a learning-rate schedule."""

    learning_rate: float | Array
    final_learning_rate: float | Array
    starts: float | Array = 0.0
    """Fraction of the training after which the learning rate starts to decay."""
    ends: float | Array = 1.0
    """Fraction of the training after which it has its final value."""
    max_grad_norm: float | Array | None = None
    """Gradients are clipped to this norm."""
    kind: Transformation = eqx.field(static=True, default="adam")
    eps: float = eqx.field(static=True, default=1e-8)
    """ε of Adam."""

    def at(self, rate: Float[Array, ""] | float) -> optax.GradientTransformation:
        """Return the Optax transformation at a learning rate."""
        make = getattr(optax, self.kind) if isinstance(self.kind, str) else self.kind
        own = optax.adam(rate, eps=self.eps) if self.kind == "adam" else make(rate)
        return own if self.max_grad_norm is None else optax.chain(optax.clip_by_global_norm(self.max_grad_norm), own)

    def init(self, params: Any) -> Any:
        """Return the state before the first step."""
        return _start(self.kind, self.max_grad_norm is not None, eqx.filter(params, eqx.is_inexact_array))

    def rate(self, done: Float[Array, ""]) -> Float[Array, ""]:
        """Return the learning rate at this progress of the training."""
        fallen = ramp(done, self.starts, self.ends)
        return self.learning_rate + fallen * (self.final_learning_rate - self.learning_rate)

    def step(self, params: Any, gradient: Any, opt_state: Any, clock: Clock) -> tuple[Any, Any]:
        """Return parameters and state after one step."""
        trained = eqx.filter(params, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # Optax raises floats to whole numbers
            change, opt_state = self.at(jnp.asarray(self.rate(clock.done))).update(gradient, opt_state, trained)
        if self.kind != "adam":  # weight decay, for example, must not change what has no gradient, such as statistics
            change = jax.tree.map(lambda x, slope: jnp.where(jnp.any(slope != 0), x, 0.0), change, gradient)
        return eqx.apply_updates(params, change), opt_state


@functools.partial(jax.jit, static_argnums=(0, 1))
def _start(kind: Transformation, clips: bool, params: Any) -> Any:
    """Return the zeros for all shapes from one compiled program."""
    return Optimiser(0.0, 0.0, max_grad_norm=1.0 if clips else None, kind=kind).at(0.0).init(params)
