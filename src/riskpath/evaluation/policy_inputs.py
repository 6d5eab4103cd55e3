"""Checks of the observations, rewards, action masks and actions that a policy receives; an error is one line.

A network returns some action for any input, even NaN. Therefore wrong numbers are refused before it sees them.
"""

import math
import random
from collections.abc import Collection
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec
from riskpath.validation import LARGEST, as_numbers


def require_states(numbers: np.ndarray, count: int, start: int = 0) -> None:
    """Refuse numbers that are not states, which have the numbers `start`, …, `start + count − 1`."""
    last = start + count - 1
    if not ((numbers >= start) & (numbers <= last) & (np.mod(numbers, 1) == 0)).all():
        raise RiskpathError(f"states have numbers from {start} to {last}, got {numbers.tolist()}")


def require_known(what: str, name: Any, names: Collection[Any]) -> None:
    """Refuse the name of a state or an action that a finite problem does not have."""
    try:
        known = name in (names if isinstance(names, dict) else set(names))
    except TypeError:  # not hashable
        known = False
    if not known:
        few = ", ".join(map(repr, list(names)[:6])) + (", …" if len(names) > 6 else "")
        raise RiskpathError(f"the problem has no {what} {short(name)}; it has {few}")


def as_reward(reward: Any) -> float:
    """Return a reward as a finite number."""
    try:
        value = math.nan if isinstance(reward, str) else float(reward)
    except (TypeError, ValueError, OverflowError):  # a whole number of 400 digits
        value = math.nan
    if not abs(value) <= LARGEST:
        raise RiskpathError(f"a reward must be a finite number, got {short(reward)}")
    return value


def missing_reward(allowed: bool, agent: str) -> float:
    """Return 0 for a reward that was not given; refuse it if an agent acts on it."""
    if not allowed:
        raise RiskpathError(f"{agent} acts on the rewards it received: give reward=…, that of the previous step")
    return 0.0


def as_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an action mask as an array; refuse one of another shape or without any available action."""
    array = as_numbers(mask, "an action mask")
    if array.shape[-1:] == shape[-1:] and array.size == math.prod(shape):
        array = array.reshape(shape)  # a leading axis of one environment may be missing or too many
    if array.shape != shape:
        raise RiskpathError(f"an action mask must have shape {shape}, got {array.shape}")
    if not np.isin(array, (0, 1)).all():
        raise RiskpathError(f"an action mask must consist of 0 and 1, got {array.tolist()}")
    if array.size and not array.any(axis=-1).all():
        raise RiskpathError("an action mask must leave at least one action available, but it is all zero")
    return array.astype(bool)


def as_starts(starts: Any, memories: Any, count: int) -> np.ndarray:
    """Tell for each environment whether an episode begins: by default in all without memories yet, else in none."""
    array = np.full(count, memories is None) if starts is None else np.asarray(starts, bool).ravel()
    if len(array) != count:
        raise RiskpathError(f"episode starts are of {len(array)} environments, the observation of {count}")
    return array


def as_rewards(rewards: Any, starts: np.ndarray, agent: str | None) -> np.ndarray:
    """Return the last reward of every environment, 0 where an episode begins; the agent that is named needs them."""
    if rewards is None:
        if agent is not None and not starts.all():
            raise RiskpathError(f"{agent} acts on the rewards it received: give rewards=…, one for each environment")
        return np.zeros(len(starts), np.float32)
    array = np.atleast_1d(as_numbers(rewards, "a reward"))
    if array.shape != starts.shape:
        raise RiskpathError(f"rewards have shape {array.shape}, but there are {len(starts)} environments")
    return np.where(starts, 0, array).astype(np.float32)


def episode_seeds(count: int, mixed: bool) -> np.ndarray:
    """Return a random number for each environment, if one of several policies is drawn at the start of an episode."""
    return np.array([random.getrandbits(31) if mixed else 0 for _ in range(count)], np.uint32)


def as_action(action: Any, spec: EnvSpec) -> np.ndarray:
    """Return an action of the agent as an array: an action number, or a vector with entries in [−1, 1]."""
    array = as_numbers(action, "an action")
    if spec.action_size:
        if array.shape != (spec.action_size,):
            raise RiskpathError(f"an action must have shape {(spec.action_size,)}, got {array.shape}")
        return array.astype(np.float32)
    if spec.action_heads:
        if array.shape != (len(spec.action_heads),) or (array < 0).any() or (array >= spec.action_heads).any():
            raise RiskpathError(f"an action has numbers below {spec.action_heads}, got {array.tolist()}")
        return array.astype(np.int32)
    if array.shape != () or not 0 <= array < spec.num_actions or array % 1:
        raise RiskpathError(f"actions have numbers from 0 to {spec.num_actions - 1}, got {array.tolist()}")
    return array.astype(np.int32)


def short(value: Any) -> str:
    """Return a value as text of one line, or its type if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def read_action(space: Any, action: Any) -> np.ndarray:
    """Return an action of a Gymnasium space as the agent's own: the inverse of `Translation.write`."""
    taken = as_numbers(action, "an action")
    if not hasattr(space, "low"):
        return taken - space.start
    if taken.shape != space.shape:
        raise RiskpathError(f"an action must have shape {space.shape}, got {taken.shape}")
    width = np.where(space.high > space.low, space.high - space.low, 1)
    return np.clip(2.0 * (taken - space.low) / width - 1.0, -1.0, 1.0).ravel()
