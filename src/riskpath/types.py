"""What travels between environments, agents and the loop, and the letters that name the axes.

Axes: L lanes (seeds and settings trained side by side), E environments of a lane, B batch, T time in a window,
N online and M target quantile levels, A actions, H hidden units, S states.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Key = PRNGKeyArray
Keys = jaxtyping.Key[Array, " L"]
"""One for each lane."""


class EnvSpec(eqx.Module):
    """What an agent must know of an environment before it starts."""

    num_actions: int = eqx.field(static=True)
    """How many actions there are; 0 if they are vectors."""
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of an observation; () for a state number."""
    num_states: int | None = eqx.field(static=True, default=None)
    """How many state numbers there are, if observations are such."""
    max_episode_steps: int | None = eqx.field(static=True, default=None)
    """The most steps an episode can have, if known."""
    action_size: int = eqx.field(static=True, default=0)
    """Length of an action that is a vector with entries in [−1, 1]; 0 if actions are numbered."""
    observation_bounds: tuple[tuple[float, float], ...] | None = eqx.field(static=True, default=None)
    """Lowest and highest value of each entry of an observation (or one pair for all), if known: networks see them
    mapped to [−1, 1]."""
    deterministic: bool = eqx.field(static=True, default=False)
    """Do actions alone determine the states? Then a history is known by its actions."""
    pixels: bool = eqx.field(static=True, default=False)
    """Are observations images whose entries are bytes? They are kept as such."""

    @property
    def observation_dtype(self) -> Any:
        """What observations are stored as."""
        return jnp.int32 if self.num_states is not None else jnp.uint8 if self.pixels else jnp.float32


class Percept(eqx.Module):
    """What the environment tells an agent when it is to act."""

    obs: Shaped[Array, "*obs"]
    """The observation."""
    reward: Float[Array, ""]
    """The reward of the step before; 0 at the start of an episode."""
    mask: Bool[Array, " A"]
    """Which actions are available; empty if actions are vectors."""


class Step(eqx.Module):
    """One step as the replay keeps it: everything a critic may need, nothing twice."""

    obs: Shaped[Array, "*obs"]
    """s_t."""
    action: Shaped[Array, "*act"]
    """a_t: a number, or a vector with entries in [−1, 1]."""
    reward: Float[Array, ""]
    """r_t."""
    next_obs: Shaped[Array, "*obs"]
    """s_{t+1}, the true one even where an episode ended."""
    next_mask: Bool[Array, " A"]
    """Which actions are available in s_{t+1}."""
    terminated: Bool[Array, ""]
    """Did the episode end in s_{t+1}? A time limit is no such end."""
    truncated: Bool[Array, ""]
    """Was it cut off there?"""
    time: Int[Array, ""]
    """t, the number of steps before this one in its episode."""
    earned: Float[Array, ""]
    """R_{0:t} = Σ_{i≤t} γⁱ r_i, this step's reward included."""
    extra: Float[Array, ""]
    """One number of the agent's own memory when it acted (CVaR-DRL: its threshold)."""


class Window(eqx.Module):
    """A step together with the history before it, gathered from the replay."""

    step: Step
    """The step at time t."""
    obs: Shaped[Array, "T *obs"]
    """s_{t−T+1}, …, s_t."""
    prev_action: Shaped[Array, "T *act"]
    """a_{t−T}, …, a_{t−1}: the action *before* each of those states (the first is not filled in)."""
    valid: Bool[Array, " T"]
    """Which of them belong to this episode; the last always does."""


def power(discount: float | Array, time: Int[Array, ""]) -> Float[Array, ""]:
    """γᵗ."""
    return jnp.asarray(discount, jnp.float32) ** time.astype(jnp.float32)


def tree_where(condition: Bool[Array, ""], yes, no):
    """`jnp.where` over PyTrees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def stop_gradient(tree):
    """`jax.lax.stop_gradient` for PyTrees that hold functions, too."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, tree)
