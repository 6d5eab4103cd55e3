"""An agent whose programs are compiled quickly, and runs of which only some parts exist."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

import riskpath as rp
from riskpath.agents.agent import ActorOutput
from riskpath.agents.learning import new_state


class Counting(rp.MemorylessAgent):
    """Counts how often it learns, explores at random, and knows nothing else."""

    actions: ClassVar[Literal["discrete", "continuous", "any"]] = "any"

    def init(self, spec, *, key):
        return new_state(self, jnp.zeros(()))

    def act(self, state, memory, time_step, *, key, mode):
        mask, before = time_step.action_mask, time_step.prev_action
        if not mask.size:
            return ActorOutput(jnp.where(mode.explores, jax.random.uniform(key, before.shape), 0.25))
        scores = jnp.where(mode.explores, jax.random.uniform(key, mask.shape), 0.5)
        return ActorOutput(jnp.argmax(jnp.where(mask, scores, -1.0)).astype(jnp.int32))

    def update(self, state, batch, clock, *, key):
        return eqx.tree_at(lambda s: s.params, state, state.params + 1), {"loss": jnp.mean(batch.reward)}

    def quantiles(self, state, memory, time_step, taus):
        return state.params + jnp.zeros((taus.size, max(1, time_step.action_mask.size)))


def fake_run(**parts: Any) -> rp.Run:
    """Return a run with these attributes and methods in place of its own; others that were never set are missing."""
    parts = {name: staticmethod(part) if callable(part) else part for name, part in parts.items()}
    made: Any = type("FakeRun", (rp.Run,), parts)
    return object.__new__(made)
