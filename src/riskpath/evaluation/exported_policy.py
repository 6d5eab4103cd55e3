"""A greedy policy as one file for production, without training code, replay buffer or environment.

    run.policy().export("policy.zip")
    policy = rp.load_policy("policy.zip")
    action, memory = policy(observation, memory, reward)

The file is a ZIP archive with two members: `policy.stablehlo`, the program of one step for any number of environments
with all parameters in it (`jax.export`), and `policy.json`, which describes its inputs. Any Python with JAX can call it
without this library; `docs/guides/production.md` has the lines. The program is

    actions, memories = step(memories, observations, rewards, masks, starts, seeds)

and every array has an axis of environments first. `starts` resets a memory, so that first memories may be zeros;
`seeds` matter only to mixtures of policies.
"""

import io
import json
import os
import platform
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from riskpath.envs.finite import FiniteEnvironment
from riskpath.errors import RiskpathError
from riskpath.evaluation.policy_inputs import (
    as_mask,
    as_numbers,
    as_reward,
    as_rewards,
    as_starts,
    episode_seeds,
    missing_reward,
    require_states,
    short,
)
from riskpath.evaluation.policy_program import first_memory, needs_rewards, step_of
from riskpath.extras import require_extra
from riskpath.nn.kernels import without_kernels
from riskpath.version import __version__

FORMAT, VERSION = "riskpath policy", 1
PROGRAM, DESCRIPTION = "policy.stablehlo", "policy.json"
PLATFORMS = ("cpu", "cuda")
"""Where an exported program runs by default."""
KNOWN = ("cpu", "cuda", "rocm", "tpu")
"""Where it can run."""

Memories = tuple[Any, ...]


class ExportedPolicy:
    """A policy that was exported: a function of arrays, which any number of threads may call."""

    def __init__(self, program: export.Exported, description: dict[str, Any]):
        self.description = description
        """What `policy.json` holds: agent, measure, environment, inputs, names and versions."""
        self._call, self._step = program.call, jax.jit(program.call)
        self._shape = tuple(description["observation"]["shape"])
        self._dtype = np.dtype(description["observation"]["dtype"])
        self._count = int(description["num_actions"])
        self._states = description["states"] and {_key(name): i for i, name in enumerate(description["states"])}
        self.fresh = tuple(np.zeros((1, *leaf["shape"]), leaf["dtype"]) for leaf in description["memory"])
        """A memory for the start of an episode, where its numbers do not count."""
        # Fewer arguments take less time: an observation of few numbers and the reward are one.
        self._mixed = bool(description["mixed"])
        self._packs = self._dtype == np.float32 and self._states is None and not self._mixed
        self._step_packed = jax.jit(self._unpack)
        # What does not change from call to call is on the device already.
        self._all, self._yes = jnp.ones((1, self._count), bool), jnp.ones((1,), bool)
        self._no = jnp.zeros((1,), bool)

    def __repr__(self) -> str:
        about = self.description
        return f"<policy of {about['agent']} for {about['risk']} on {about['environment']}>"

    def __call__(
        self, observation: Any, memory: Memories | None = None, reward: float | None = None, mask: Any = None
    ) -> Any:
        """Return the greedy action and the memory for the next call.

        Args:
            observation: The observation; a state of a finite problem by its name.
            memory: The memory that the previous call returned; None at the start of an episode.
            reward: The reward of the previous step; not needed at the start, nor by agents that do not act on rewards.
            mask: Which discrete actions are available; by default all, of a finite problem those that the state has.
        """
        starts = self._yes if memory is None else self._no
        if memory is not None:
            self._require(memory, 1)
        if reward is None:
            reward = missing_reward(memory is None or not self.description["needs_rewards"], self.description["agent"])
        memory = self.fresh if memory is None else memory
        if mask is None and self._packs and (packed := self._pack(observation, reward)) is not None:
            actions, memory = self._step_packed(memory, packed, starts)
        else:
            obs = self.read(observation)[None]
            masks = self._all if mask is None else as_mask(mask, (1, self._count))
            rewards = np.array([as_reward(reward)], np.float32)
            actions, memory = self._step(memory, obs, rewards, masks, starts, episode_seeds(1, self._mixed))
        return self.write(np.asarray(actions)[0]), memory

    def act_batch(
        self,
        observations: Any,
        memories: Memories | None = None,
        rewards: Any = None,
        masks: Any = None,
        starts: Any = None,
    ) -> tuple[np.ndarray, Memories]:
        """Return greedy actions for many environments, and their memories for the next call.

        Args:
            observations: One for each environment; states of a finite problem by their numbers.
            memories: The memories that the previous call returned; None at first.
            rewards: The reward of the previous step of each environment.
            masks: Which actions are available, [environments, actions].
            starts: In which environments an episode begins; by default in all if there are no memories, else in none.
        """
        obs = as_numbers(observations, "an observation").astype(self._dtype)
        if obs.shape[1:] != self._shape or obs.ndim != len(self._shape) + 1 or not len(obs):
            raise RiskpathError(f"observations must have shape (environments, *{self._shape}), got {obs.shape}")
        self._require_states(obs)
        count = len(obs)
        starts = as_starts(starts, memories, count)
        rewards = as_rewards(rewards, starts, self.description["agent"] if self.description["needs_rewards"] else None)
        masks = np.ones((count, self._count), bool) if masks is None else as_mask(masks, (count, self._count))
        if memories is None:
            memories = tuple(np.zeros((count, *leaf.shape[1:]), leaf.dtype) for leaf in self.fresh)
        self._require(memories, count)
        actions, after = self._step(memories, obs, rewards, masks, starts, episode_seeds(count, self._mixed))
        return np.array(actions), after

    def _pack(self, observation: Any, reward: Any) -> np.ndarray | None:
        """Return an observation and a reward as one array; None if they are not finite, or of another shape or type."""
        if type(observation) is not np.ndarray or observation.shape != self._shape or type(reward) is not float:
            return None
        packed = np.empty(observation.size + 1, np.float32)
        packed[:-1], packed[-1] = observation.ravel(), reward
        return packed if np.isfinite(packed).all() else None

    def _unpack(self, memory: Memories, packed: Any, starts: Any) -> Any:
        obs = packed[:-1].reshape(1, *self._shape)
        masks, seeds = jnp.ones((1, self._count), bool), jnp.zeros((1,), jnp.uint32)
        return self._call(memory, obs, packed[-1:], masks, starts, seeds)

    def read(self, observation: Any) -> np.ndarray:
        """Return one observation as `act_batch` takes it, without the axis of environments."""
        if self._states is not None:
            return self._state(observation)
        obs = as_numbers(observation, "an observation").astype(self._dtype)
        if obs.shape != self._shape:
            raise RiskpathError(f"an observation must have shape {self._shape}, got {obs.shape}")
        self._require_states(obs)
        return obs

    def write(self, action: np.ndarray | np.generic) -> Any:
        """Return one action of `act_batch` as a call of the policy returns it: by its name if it has one."""
        if names := self.description["actions"]:
            return names[int(action)]
        return action if np.ndim(action) else int(action)

    def _require_states(self, obs: np.ndarray) -> None:
        if (count := self.description["num_states"]) is not None:
            require_states(obs, count, self.description["first_state"])

    def _state(self, name: Any) -> np.ndarray:
        try:
            return np.array(self._states[_key(name)], np.int32)
        except KeyError:
            raise RiskpathError(f"the problem has no state {short(name)}") from None

    def _require(self, memories: Any, count: int) -> None:
        shapes = [getattr(part, "shape", None) for part in memories] if isinstance(memories, tuple | list) else None
        if shapes != [(count, *leaf.shape[1:]) for leaf in self.fresh]:
            raise RiskpathError(f"memory must be None or what this policy returned for {count} environments")


def export_policy(policy: Any, path: str | Path, platforms: tuple[str, ...] = PLATFORMS) -> Path:
    """Write a `LearnedPolicy` to a file; only an older export is replaced."""
    path = Path(path)
    if path.exists() and not _is_export(path):
        raise RiskpathError(f"{path} exists and is not an exported policy: give another path")
    if not platforms or not set(platforms) <= set(KNOWN):
        raise RiskpathError(
            f"platforms must be some of {', '.join(KNOWN)}; got {', '.join(map(str, platforms)) or 'none'}"
        )
    require_extra("flatbuffers", "export", "an exported policy")
    program, description = _trace(policy, platforms)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(DESCRIPTION, json.dumps(description, indent=1, allow_nan=False))
        archive.writestr(PROGRAM, program.serialize())
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content.getvalue())
        os.replace(part, path)
    except OSError as error:
        raise RiskpathError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def load_policy(path: str | Path) -> ExportedPolicy:
    """Load an exported policy; nothing else of the training is needed."""
    try:
        with zipfile.ZipFile(path) as archive:
            description, program = json.loads(archive.read(DESCRIPTION)), archive.read(PROGRAM)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else "is not an exported policy"
        raise RiskpathError(f"{path} {why}") from None
    if description.get("format") != FORMAT or description.get("version") != VERSION:
        raise RiskpathError(f"{path} has another format than {FORMAT} {VERSION}")
    here = export.default_export_platform()
    if here not in (there := description.get("platforms", [here])):
        raise RiskpathError(f"{path} was exported for {', '.join(there)}; JAX runs on {here} here")
    require_extra("flatbuffers", "export", "an exported policy")
    try:
        return ExportedPolicy(export.deserialize(bytearray(program)), description)
    except Exception as error:  # whatever a damaged program leads to
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RiskpathError(f"{path} is damaged, or of a version of JAX that is too different: {reason}") from None


def compile_policy(policy: Any) -> ExportedPolicy:
    """Return the policy that an export would hold, without a file."""
    return ExportedPolicy(*_trace(policy, (export.default_export_platform(),)))


def _trace(policy: Any, platforms: tuple[str, ...]) -> tuple[export.Exported, dict[str, Any]]:
    """Return the program of a policy for any number of environments, and its description."""
    agent, state, env = policy.agent, policy.state, policy.environment
    spec, step = env.spec, step_of(agent, state, env.spec)
    finite, translation = isinstance(env, FiniteEnvironment), getattr(env, "translation", None)
    seen, available = policy.tables if finite else (None, None)
    offset = int(getattr(getattr(translation, "observation_space", None), "start", 0))

    def one(memory: Any, obs: Any, reward: Any, mask: Any, start: Any, seed: Any) -> Any:
        if finite:  # by the number of the state
            obs, mask = jnp.asarray(seen)[obs], mask & jnp.asarray(available)[obs]
        elif offset:
            obs = obs - offset
        if spec.action_heads:
            mask = mask.reshape(spec.mask_shape) & spec.every_action()
        action, memory = step(memory, obs, reward, mask, start, seed)
        return (translation.scale(action) if translation else action), memory

    (count,) = export.symbolic_shape("environments")
    array = lambda shape, dtype: jax.ShapeDtypeStruct((count, *shape), dtype)  # noqa: E731
    shape, dtype = ((), jnp.int32) if finite else (spec.observation_shape, spec.observation_dtype)
    leaves = jax.tree.leaves(first_memory(state, spec))
    memory = tuple(array(leaf.shape, leaf.dtype) for leaf in leaves)
    flags, rewards, seeds = array((), bool), array((), jnp.float32), array((), jnp.uint32)
    inputs = memory, array(shape, dtype), rewards, array((spec.num_actions,), bool), flags, seeds
    with without_kernels():
        program = export.export(jax.jit(jax.vmap(one)), platforms=platforms)(*inputs)
    states, actions = ([_plain(name) for name in names] for names in policy.names()) if finite else (None, None)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "versions": {"riskpath": __version__, "jax": jax.__version__, "python": platform.python_version()},
        "platforms": list(platforms),
        "agent": type(agent).__name__,
        "risk": str(jax.tree.map(lambda level: float(f"{level:.6g}"), agent.risk)),
        "environment": env.problem.name if finite and env.problem else type(env).__name__,
        "observation": {"shape": list(shape), "dtype": np.dtype(dtype).name},
        "num_states": len(available) if available is not None else spec.num_states,
        "first_state": offset,
        "num_actions": spec.num_actions,
        "needs_rewards": needs_rewards(agent, state, spec),
        "mixed": len(policy.members()) > 1,
        "memory": [{"shape": list(leaf.shape), "dtype": np.dtype(leaf.dtype).name} for leaf in leaves],
        "states": states,
        "actions": actions,
    }
    return program, description


def _plain(name: Any) -> Any:
    """Return a name as JSON; lists stand for tuples, and a text for anything else."""
    if isinstance(name, tuple | list):
        return [_plain(part) for part in name]
    return name.item() if isinstance(name, np.generic) else name if isinstance(name, str | int | float) else repr(name)


def _key(name: Any) -> str:
    """Return the same text for a name and for what became of it in a file."""
    return json.dumps(_plain(name))


def _is_export(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(DESCRIPTION)).get("format") == FORMAT
    except (OSError, ValueError, LookupError, zipfile.BadZipFile):
        return False
