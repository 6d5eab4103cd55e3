"""Adam with clipped gradients and a learning rate that decays during the training."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from riskpath.agents.clock import Clock, ramp


class Adam(eqx.Module):
    """An Optax transformation and a learning-rate schedule."""

    learning_rate: float | Array
    final_learning_rate: float | Array
    starts: float | Array = 0.0
    """Fraction of the training after which the learning rate starts to decay."""
    ends: float | Array = 1.0
    """Fraction of the training after which it has its final value."""
    max_grad_norm: float | Array | None = None
    """Gradients are clipped to this norm."""
    eps: float = eqx.field(static=True, default=1e-8)

    @property
    def transformation(self) -> optax.GradientTransformation:
        """Return the Optax transformation of gradients before the learning rate multiplies them."""
        adam = optax.scale_by_adam(eps=self.eps)
        return adam if self.max_grad_norm is None else optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam)

    def init(self, params: Any) -> Any:
        """Return the state before the first step."""
        return _start(self.eps, self.max_grad_norm is not None, eqx.filter(params, eqx.is_inexact_array))

    def rate(self, done: Float[Array, ""]) -> Float[Array, ""]:
        """Return the learning rate at this progress of the training."""
        fallen = ramp(done, self.starts, self.ends)
        return self.learning_rate + fallen * (self.final_learning_rate - self.learning_rate)

    def step(self, params: Any, gradient: Any, opt_state: Any, clock: Clock) -> tuple[Any, Any]:
        """Return parameters and state after one step."""
        with jax.numpy_dtype_promotion("standard"):  # Optax raises floats to whole numbers
            change, opt_state = self.transformation.update(gradient, opt_state)
        rate = jnp.asarray(self.rate(clock.done))
        return eqx.apply_updates(params, jax.tree.map(lambda x: -rate * x, change)), opt_state


@functools.partial(jax.jit, static_argnums=(0, 1))
def _start(eps: float, clips: bool, params: Any) -> Any:
    """Return the zeros for all shapes from one compiled program."""
    return Adam(0.0, 0.0, max_grad_norm=1.0 if clips else None, eps=eps).transformation.init(params)
