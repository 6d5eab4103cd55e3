"""The data that environments, agents and the training loop exchange, and the letters that name array axes.

Axes: L lanes (seeds and settings trained side by side), E environments of a lane, B batch, T time in a window,
N online and M target quantile levels, A actions, H hidden units, S states.
"""

from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from riskpath.registry import Registered

Key = PRNGKeyArray
Keys = jaxtyping.Key[Array, " L"]
"""One key for each lane."""


class EnvSpec(eqx.Module, Registered):
    """The shapes and limits of an environment that an agent needs before training starts."""

    num_actions: int = eqx.field(static=True)
    """Number of discrete actions; 0 if actions are continuous."""
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of an observation; () for a state number."""
    num_states: int | None = eqx.field(static=True, default=None)
    """Number of states, if an observation is a state number."""
    max_episode_steps: int | None = eqx.field(static=True, default=None)
    """Largest number of steps in an episode, if known."""
    action_size: int = eqx.field(static=True, default=0)
    """Length of a continuous action, whose entries lie in [−1, 1]; 0 if actions are discrete."""
    observation_bounds: tuple[tuple[float, float], ...] | None = eqx.field(static=True, default=None)
    """Lowest and highest value of each entry of an observation (or one pair for all), if known. Encoders map them to
    [−1, 1]."""
    observation_levels: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Number of different values of each entry of an observation, if there are finitely many and they are known."""
    state_coordinates: tuple[tuple[float, ...], ...] | None = eqx.field(static=True, default=None)
    """Numbers from −1 to 1 that say where each state lies, if states are numbered and are numbers or tuples of them."""
    deterministic: bool = eqx.field(static=True, default=False)
    """Whether actions alone determine the states, so that a history is identified by its actions."""
    pixels: bool = eqx.field(static=True, default=False)
    """Whether observations are images of bytes; the replay buffer stores them as bytes."""
    action_heads: tuple[int, ...] = eqx.field(static=True, default=())
    """If an action is a vector of several independent choices (heads): the number of options of each. A mask and the
    values of actions then have a row for each head, padded to the longest, with `num_actions` entries in all."""
    conditions: int = eqx.field(static=True, default=0)
    """Number of statistics of the condition that an episode starts with, if the environment exposes it."""

    @property
    def observation_dtype(self) -> Any:
        """Return the type that observations are stored as."""
        return jnp.int32 if self.num_states is not None else jnp.uint8 if self.pixels else jnp.float32

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """Return the shape of an action mask: one entry for each action, or a row for each head."""
        return (len(self.action_heads), max(self.action_heads)) if self.action_heads else (self.num_actions,)

    def every_action(self) -> Bool[Array, "*A"]:
        """Return the mask in which every action is available."""
        if not self.action_heads:
            return jnp.ones(self.mask_shape, bool)
        return jnp.arange(self.mask_shape[1])[None, :] < jnp.asarray(self.action_heads)[:, None]

    def no_action(self) -> Shaped[Array, "*act"]:
        """Return the placeholder for the previous action at the start of an episode."""
        heads = (len(self.action_heads),) if self.action_heads else ()
        return jnp.zeros((self.action_size,)) if self.action_size else jnp.zeros(heads, jnp.int32)

    def first_time_step(self, observation: Shaped[Array, "*obs"], action_mask: Bool[Array, "*A"]) -> "TimeStep":
        """Return the time step at the start of an episode."""
        return TimeStep(observation, jnp.zeros(()), action_mask, self.no_action(), jnp.zeros((), jnp.int32))


class TimeStep(eqx.Module):
    """The inputs of an agent when it acts."""

    observation: Shaped[Array, "*obs"]
    """s_t."""
    reward: Float[Array, ""]
    """r_{t−1}, the reward of the step before; 0 at the start of an episode."""
    action_mask: Bool[Array, "*A"]
    """Which discrete actions are available (of each head, if there are several); empty if actions are continuous."""
    prev_action: Shaped[Array, "*act"]
    """a_{t−1}, the action that was really taken; 0 at the start of an episode."""
    time: Int[Array, ""]
    """t, the number of steps taken in this episode."""


class Transition(eqx.Module):
    """One step as the replay buffer stores it."""

    observation: Shaped[Array, "*obs"]
    """s_t."""
    action: Shaped[Array, "*act"]
    """a_t: an action number, a vector with entries in [−1, 1], or a number for each head."""
    reward: Float[Array, ""]
    """r_t."""
    next_observation: Shaped[Array, "*obs"]
    """s_{t+1}, the true one even where an episode ended."""
    next_action_mask: Bool[Array, "*A"]
    """Which actions are available in s_{t+1}."""
    terminated: Bool[Array, ""]
    """Whether the return ended in s_{t+1}; a time limit is an end only where `Agent.ends_at_limit`."""
    truncated: Bool[Array, ""]
    """Whether a time limit cut the episode off there."""
    time: Int[Array, ""]
    """t."""
    return_so_far: Float[Array, ""]
    """R_{0:t} = Σ_{i≤t} γⁱ r_i, this step's reward included."""
    extras: Any
    """What the agent's `act` returned as extras, for example CVaR-DRL's threshold."""


class Window(eqx.Module):
    """A transition together with the history before it, gathered from the replay buffer."""

    transition: Transition
    """The transition at time t."""
    observation: Shaped[Array, "T *obs"]
    """s_{t−T+1}, …, s_t."""
    prev_action: Shaped[Array, "T *act"]
    """a_{t−T}, …, a_{t−1}: the action *before* each of those states. The first entry is not filled in."""
    valid: Bool[Array, " T"]
    """Which entries belong to this episode; the last one always does."""


class Segment(eqx.Module):
    """Consecutive transitions of one environment, gathered from the replay buffer, for targets over several steps."""

    steps: Transition
    """The transitions at t, t + 1, …; leaves have a leading axis of n."""
    valid: Bool[Array, " n"]
    """Which of them are stored already; the first one always is. Later ones may belong to the next episode."""

    @property
    def first(self) -> Transition:
        """The transition at t."""
        return jax.tree.map(lambda x: x[0], self.steps)


class Trajectory(eqx.Module):
    """Consecutive steps of all environments of a lane, in order, for agents that learn from their own actions."""

    steps: Transition
    """Leaves have leading axes T, E. Where an episode ended, the next row begins another one."""
    following: TimeStep
    """The next time step of every environment."""
    memory: Any
    """The agent's memory at that time."""


def shapes_of(tree: Any) -> Hashable:
    """Return the static part of a tree, on which a traced program depends: everything but the numbers in its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((x.shape, x.dtype) if eqx.is_array(x) else (type(x), x) for x in leaves)


def power(discount: float | Array, time: Int[Array, ""]) -> Float[Array, ""]:
    """Return γᵗ."""
    return jnp.asarray(discount, jnp.float32) ** time.astype(jnp.float32)


def tree_where(condition: Bool[Array, ""], yes, no):
    """Apply `jnp.where` to PyTrees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def stop_gradient(tree):
    """Apply `jax.lax.stop_gradient` to the arrays of a PyTree."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, tree)
