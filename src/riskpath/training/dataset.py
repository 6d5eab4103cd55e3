"""Logged data: episodes that somebody else played, from arrays, from Minari, from a run, or recorded from a policy.

    data = rp.Dataset.from_episodes(observations, actions, rewards)
    data = rp.Dataset.from_minari("mujoco/pendulum/expert-v0")
    run = rp.train(rp.IQN("cvar:0.1"), data=data, steps=20_000)

Arrays stay as they were given, bit for bit. They are converted to what an agent sees only when it is trained. Nothing
guards an agent that learns from data alone against actions that the data never tried.
"""

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, in_one_line, short_repr
from riskpath.extras import require_extra
from riskpath.files import removed_on_failure, require_space
from riskpath.types import EnvSpec
from riskpath.validation import given, require_counts

MASK = "action_mask"
"""The entry of Gymnasium's and Minari's infos that holds action masks."""


EPISODE_BYTES = 20_000
"""What a short episode takes in HDF5."""


@dataclass(frozen=True, eq=False)
class Episode:
    """One logged episode of T steps."""

    observations: np.ndarray
    """s_0, …, s_T."""
    actions: np.ndarray
    """a_0, …, a_{T−1}."""
    rewards: np.ndarray
    """r_0, …, r_{T−1}."""
    terminated: bool = True
    """Whether the episode ended in s_T; otherwise it was cut off there."""
    action_masks: np.ndarray | None = None
    """Which actions were available in s_0, …, s_T; None for all."""

    def __post_init__(self):
        steps = len(self.rewards)
        if self.rewards.ndim != 1 or steps == 0:
            raise RiskpathError(f"rewards of an episode must be a list of numbers, got shape {self.rewards.shape}")
        for name, wanted in (("observations", steps + 1), ("actions", steps), ("action_masks", steps + 1)):
            value = getattr(self, name)
            if value is not None and len(value) != wanted:
                raise RiskpathError(f"an episode of {steps} rewards needs {wanted} {name}, got {len(value)}")
        for name in ("rewards", "observations"):
            value = getattr(self, name)
            if not np.issubdtype(value.dtype, np.number) or not np.isfinite(value).all():
                raise RiskpathError(f"{name} of an episode must be finite numbers")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Logged episodes, and what is known about the environment in which they were played."""

    episodes: tuple[Episode, ...] = field(repr=False)
    """The episodes, in order."""
    spec: EnvSpec
    """Sizes of observations and actions."""
    translation: Any = field(default=None, repr=False)
    """Converts observations and actions of a Gymnasium environment; None if they are the agent's own."""

    def __post_init__(self):
        if not self.episodes:
            raise RiskpathError("a data set needs at least one episode")

    def __len__(self) -> int:
        """Return the number of steps."""
        return sum(len(episode.rewards) for episode in self.episodes)

    def __repr__(self) -> str:
        returns = [float(episode.rewards.sum()) for episode in self.episodes]
        size = f"{len(self.episodes):,} episodes, {len(self):,} steps"
        return f"<Dataset: {size}, returns {min(returns):.4g} to {max(returns):.4g}>"

    @staticmethod
    def from_episodes(
        observations: Sequence[Any],
        actions: Sequence[Any],
        rewards: Sequence[Any],
        terminated: Sequence[bool] | bool = True,
        action_masks: Sequence[Any] | None = None,
        *,
        num_states: int | None = None,
        num_actions: int | None = None,
        max_episode_steps: int | None = None,
    ) -> "Dataset":
        """Return a data set from arrays, one for each episode.

        Args:
            observations: T + 1 observations of each episode, the last one after its last action. Whole numbers are
                state numbers, pictures are bytes.
            actions: T actions: numbers, or vectors with entries in [−1, 1].
            rewards: T rewards.
            terminated: Whether each episode ended by itself; otherwise it was cut off.
            action_masks: T + 1 masks; by default every action was available.
            num_states: Number of states; by default one more than the largest.
            num_actions: Number of actions; by default one more than the largest.
            max_episode_steps: The limit of the environment, if it has one.
        """
        require_counts(**given(num_states=num_states, num_actions=num_actions, max_episode_steps=max_episode_steps))
        parts = {"observations": observations, "actions": actions, "rewards": rewards}
        for name, part in parts.items():
            if isinstance(part, str | bytes | dict) or not hasattr(part, "__len__"):
                raise RiskpathError(
                    f"{name} must be a list with one array for each episode, got {short_repr(part, 60)}"
                )
        if len({len(part) for part in parts.values()}) > 1:
            counts = ", ".join(f"{len(part)} {name}" for name, part in parts.items())
            raise RiskpathError(f"give observations, actions and rewards of the same episodes, got {counts}")
        with in_one_line("cannot read episodes"):
            ends = [terminated] * len(rewards) if isinstance(terminated, bool) else list(terminated)
            masks = [None] * len(rewards) if action_masks is None else [np.asarray(mask, bool) for mask in action_masks]
            columns = ([np.asarray(one) for one in part] for part in parts.values())
            listed = [Episode(*arrays) for arrays in zip(*columns, map(bool, ends), masks, strict=True)]
            spec = _spec_of(listed, num_states, num_actions, max_episode_steps)
        return Dataset(tuple(listed), spec)

    @staticmethod
    def from_minari(source: Any) -> "Dataset":
        """Return a data set of Minari: its id, if it was downloaded, its folder, or a `MinariDataset`."""
        minari = require_extra("minari", "data", "a Minari data set")
        with in_one_line(f"cannot read the Minari data set {source}"):
            if isinstance(source, str | Path):
                folder = Path(source) / "data" if (Path(source) / "data").is_dir() else Path(source)
                source = minari.MinariDataset(folder) if folder.is_dir() else minari.load_dataset(str(source))
            from riskpath.envs.spaces import Translation

            limit = getattr(source.env_spec, "max_episode_steps", None)
            translation = Translation(source.observation_space, source.action_space, limit)
            listed = []
            for one in source.iterate_episodes():
                if isinstance(one.observations, dict | tuple) or isinstance(one.actions, dict | tuple):
                    raise RiskpathError("observations and actions of several parts are not read: flatten them first")
                mask = (one.infos or {}).get(MASK)
                ends = bool(one.terminations[-1])
                listed.append(Episode(one.observations, one.actions, one.rewards, ends, mask))
        return Dataset(tuple(listed), translation.spec, translation)

    def to_minari(self, dataset_id: str, **about: Any) -> Any:
        """Write these episodes as a data set of Minari, with the same bits, and return it.

        Args:
            dataset_id: Its id, for example "risky-grid/random-v0".
            about: Passed to `minari.create_dataset_from_buffers`, for example `algorithm_name` or `author`.
        """
        minari = require_extra("minari", "data", "a Minari data set")
        buffers = [_buffer(number, episode) for number, episode in enumerate(self.episodes)]
        how = self._spaces()
        if "jpeg_encoding" in inspect.signature(minari.create_dataset_from_buffers).parameters:
            how["jpeg_encoding"] = False  # it would change pixels
        with in_one_line("cannot write a Minari data set"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari asks for an author and more: `about` may name them
            place = minari.storage.get_dataset_path(dataset_id)
            require_space(place, sum(map(_bytes, self.episodes)))  # on a full disk, HDF5 ends the process
            with removed_on_failure(place):
                return minari.create_dataset_from_buffers(dataset_id, buffers, **{**how, **about})

    def _spaces(self) -> dict[str, Any]:
        if self.translation is not None:
            own = self.translation
            return {"observation_space": own.observation_space, "action_space": own.action_space}
        spaces, spec = require_extra("gymnasium", "gymnasium", "a Minari data set").spaces, self.spec
        low, high = (0, 255) if spec.pixels else (-np.inf, np.inf)
        seen, taken = self.episodes[0].observations.dtype, self.episodes[0].actions.dtype
        observations, actions = spaces.Discrete(spec.num_states or 1), spaces.Discrete(spec.num_actions or 1)
        if spec.num_states is None:
            observations = spaces.Box(low, high, spec.observation_shape, seen)
        if not spec.num_actions:
            actions = spaces.Box(-1.0, 1.0, (spec.action_size,), taken)
        return {"observation_space": observations, "action_space": actions}


def _buffer(number: int, episode: Episode) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = len(episode.rewards)
    last = np.arange(steps) == steps - 1
    ends = last & episode.terminated
    infos = {} if episode.action_masks is None else {MASK: episode.action_masks}
    arrays: Any = (episode.observations, episode.actions, episode.rewards, ends, last & ~ends, infos)
    make: Any = EpisodeBuffer
    return make(number, None, None, *arrays)


def _bytes(episode: Episode) -> int:
    """Return about how large an episode is in HDF5: its arrays, and what describes them."""
    arrays = (episode.observations, episode.actions, episode.rewards, episode.action_masks)
    return EPISODE_BYTES + 2 * len(episode.rewards) + sum(array.nbytes for array in arrays if array is not None)


def _spec_of(episodes: list[Episode], states: int | None, actions: int | None, limit: int | None) -> EnvSpec:
    """Return the specification that follows from the arrays."""
    if not episodes:
        raise RiskpathError("a data set needs at least one episode")
    first = episodes[0]
    shapes = {(e.observations.shape[1:], e.actions.shape[1:]) for e in episodes}
    if len(shapes) > 1:
        raise RiskpathError(f"observations and actions must have the same shapes in all episodes, got {shapes}")
    shape, dtype = first.observations.shape[1:], first.observations.dtype
    sizes: dict[str, Any] = {"observation_shape": shape or (1,), "max_episode_steps": limit}
    if not shape and np.issubdtype(dtype, np.integer):
        most = int(max(e.observations.max() for e in episodes)) + 1
        sizes |= {"observation_shape": (), "num_states": _at_least("num_states", states, most)}
    elif dtype == np.uint8 and len(shape) in (2, 3):
        sizes["pixels"] = True
    if np.issubdtype(first.actions.dtype, np.integer) and not first.actions.shape[1:]:
        most = int(max(e.actions.max() for e in episodes)) + 1
        masks = first.action_masks
        return EnvSpec(_at_least("num_actions", actions, most if masks is None else masks.shape[1]), **sizes)
    if first.actions.ndim != 2 or max(float(np.abs(e.actions).max()) for e in episodes) > 1:
        raise RiskpathError("actions must be whole numbers, or vectors with entries from −1 to 1")
    return EnvSpec(0, action_size=first.actions.shape[1], **sizes)


def _at_least(name: str, given: int | None, most: int) -> int:
    if given is not None and given < most:
        raise RiskpathError(f"{name} is {given}, but the data contain number {most - 1}")
    return most if given is None else given
