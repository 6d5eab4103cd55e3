"""Experience: how environment steps become batches. Training loops know nothing else about how an agent learns.

    Replay      a ring of the latest steps, sampled at random     Transition, Segment or Window  [B]
    Rollout     the latest steps of every environment, in order   Trajectory                     [T, E]
    Logged      steps that somebody else took, sampled at random  as Replay

One iteration of training is some steps of every environment, then some updates. What is stored has the environments of
all lanes as columns, so lanes need no loop to write it (`replay_buffer.py`).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from riskpath.agents.replay_buffer import ReplayBuffer, add, gather, make_replay_buffer, sample_indices, unpack
from riskpath.errors import RiskpathError
from riskpath.types import Keys, TimeStep, Trajectory, Transition


class Experience(eqx.Module):
    """How environment steps become batches; all fields are static."""

    warm_up: int = eqx.field(static=True, default=0, kw_only=True)
    """Exploratory environment steps of each lane before it learns."""
    staggered: bool = eqx.field(static=True, default=False, kw_only=True)
    """Whether compiled environments begin anew once, one after the other within the first episode's time. Otherwise all
    episodes of a fixed length would end together, and a short rollout would know one part of them only."""

    @abc.abstractmethod
    def iteration(self, num_envs: int) -> tuple[int, int]:
        """Return the steps of every environment in one iteration, and the updates that follow them."""

    @abc.abstractmethod
    def require_fit(self, num_envs: int) -> None:
        """Refuse an unsuitable number of environments."""

    @abc.abstractmethod
    def init(self, example: Any, lanes: int, num_envs: int, sharding: Any = None) -> ReplayBuffer:
        """Return an empty store for transitions like `example`."""

    def add(self, store: ReplayBuffer, transitions: Transition) -> ReplayBuffer:
        """Store one step of all environments of all lanes; leaves have one leading axis for all of them."""
        return add(store, transitions)

    @abc.abstractmethod
    def batch(self, store: ReplayBuffer, lanes: int, following: TimeStep, memory: Any, *, keys: Keys) -> Any:
        """Return a batch for every lane, with an axis of lanes first.

        Args:
            store: What was stored.
            lanes: Number of lanes.
            following: The next time step of every environment of every lane.
            memory: The agent's memory at that time step.
            keys: A random key for each lane.
        """


class Replay(Experience):
    """A ring of the latest steps; batches are drawn from it at random."""

    buffer_size: int = eqx.field(static=True)
    """Transitions of each lane."""
    samples: int = eqx.field(static=True)
    """Samples for each update."""
    train_freq: int = eqx.field(static=True)
    """Environment steps for each update."""
    window: int = eqx.field(static=True, default=0)
    """Observations of history with each sample; 0 for none."""
    n_steps: int = eqx.field(static=True, default=1)
    """Consecutive steps of each sample; without a history."""

    def iteration(self, num_envs: int) -> tuple[int, int]:
        """Return how the steps for one update are divided among the environments; many of them make several updates."""
        return max(1, self.train_freq // num_envs), max(1, num_envs // self.train_freq)

    def require_fit(self, num_envs: int) -> None:
        """Refuse a number of environments that does not divide the steps evenly."""
        if num_envs % self.train_freq and self.train_freq % num_envs:
            raise RiskpathError(
                f"train_freq and num_envs must divide one another, got {self.train_freq} and {num_envs}"
            )

    def init(self, example: Any, lanes: int, num_envs: int, sharding: Any = None) -> ReplayBuffer:
        return make_replay_buffer(example, max(self.buffer_size // num_envs, 2), lanes * num_envs, sharding)

    def batch(self, store: ReplayBuffer, lanes: int, following: TimeStep, memory: Any, *, keys: Keys) -> Any:
        """Return samples of each lane's own columns."""
        ages, columns = sample_indices(store, lanes, self.samples, keys)
        return gather(store, ages, columns, self.window, 1 if self.window else self.n_steps)


class Rollout(Experience):
    """The latest steps of every environment, in order; each is used in one update only."""

    length: int = eqx.field(static=True)
    """T, the steps of every environment between two updates."""

    def iteration(self, num_envs: int) -> tuple[int, int]:
        return self.length, 1

    def require_fit(self, num_envs: int) -> None:
        """Accept any number of environments."""

    def init(self, example: Any, lanes: int, num_envs: int, sharding: Any = None) -> ReplayBuffer:
        """Return an empty store of T steps."""
        return make_replay_buffer(example, self.length, lanes * num_envs, sharding)

    def batch(self, store: ReplayBuffer, lanes: int, following: TimeStep, memory: Any, *, keys: Keys) -> Trajectory:
        """Return the whole store; an iteration has just filled it, so its first row is the oldest."""
        one = lambda row: unpack(store.example, row)
        steps: Transition = jax.vmap(jax.vmap(one))(jax.lax.optimization_barrier(store.rows))
        shape = (self.length, lanes, store.rows.shape[1] // lanes)
        by_lane = lambda x: jnp.moveaxis(x.reshape(*shape, *x.shape[2:]), 1, 0)
        return Trajectory(jax.tree.map(by_lane, steps), following, memory)


class Logged(Experience):
    """Steps of a data set, without an environment; all lanes draw from the same copy."""

    rows: int = eqx.field(static=True)
    """Number of steps."""
    samples: int = eqx.field(static=True)
    """Samples for each update."""
    window: int = eqx.field(static=True, default=0)
    """As in `Replay`."""
    n_steps: int = eqx.field(static=True, default=1)
    """As in `Replay`."""

    def iteration(self, num_envs: int) -> tuple[int, int]:
        return 0, 1  # no environment is stepped

    def require_fit(self, num_envs: int) -> None:
        """Refuse more than one environment: a data set has none."""
        if num_envs != 1:
            raise RiskpathError(f"data have no environments to step: leave num_envs at 1, got {num_envs}")

    def init(self, example: Any, lanes: int, num_envs: int, sharding: Any = None) -> ReplayBuffer:
        """Return a store with shapes but no data."""
        return make_replay_buffer(example, self.rows, 1)

    def batch(self, store: ReplayBuffer, lanes: int, following: TimeStep, memory: Any, *, keys: Keys) -> Any:
        """Return samples of all data for every lane."""
        draw = jax.vmap(lambda key: sample_indices(store, 1, self.samples, key[None]))
        ages, columns = (x[:, 0] for x in draw(keys))
        return gather(store, ages, columns, self.window, 1 if self.window else self.n_steps)
