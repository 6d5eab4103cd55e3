"""Names of fields and options that changed in version 0.2, so that an old name is answered with the new one."""

import inspect
from typing import Any

import equinox as eqx

from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import Registered
from riskpath.settings import changed_settings, describe_settings

RENAMED = {
    "lr": "learning_rate",
    "lr_end": "learning_rate_decay (the share of learning_rate that is left in the end)",
    "lr_steps": "decay_steps",
    "critic_lr": "learning_rate",
    "actor_lr": "actor_learning_rate",
    "capacity": "buffer_size",
    "start_steps": "learning_starts",
    "update_every": "train_freq",
    "target_period": "target_update_interval",
    "soft_update": "target_update_rate",
    "delay": "policy_delay",
    "smoothing": "target_policy_noise",
    "twins": "twin_target",
    "saturation": "saturation_limit",
    "quiet": "epsilon (1 − quiet)",
    "wandering": "ou_episodes",
    "ou_pull": "ou_theta",
    "hold": "hold_steps",
    "memory": "history_size",
    "normalise": "normalize_observations",
    "channels": "conv_channels",
    "envs": "num_envs",
    "watch": "evaluator",
    "limit": "max_episode_steps",
    "max_steps": "max_episode_steps",
    "late": "factored",
    "law": "lower_mean",
    "quantiles": "lower_quantiles",
}
"""Old name → new name."""
REMOVED = {"history": "histories are read by a GRU; the LSTM and the Transformer were removed"}
"""Old name → what became of it."""


def renamed_line(name: str, option: str = "") -> str | None:
    """Return the line that answers an old name, or None if the name never existed."""
    if name in REMOVED:
        return f"{option or name} no longer exists: {REMOVED[name]}"
    if name not in RENAMED:
        return None
    new = RENAMED[name]
    if option:
        word, _, rest = new.partition(" ")
        new = option.replace(name.replace("_", "-"), word.replace("_", "-")) + (f" {rest}" if rest else "")
    return f"{option or name} is now called {new}"


def _part_of(cls: Any, name: str) -> str:
    """Return where a field belongs, if it is one of a part such as `training`."""
    new = RENAMED.get(name, name).partition(" ")[0]
    for part, field in cls.__dataclass_fields__.items():
        kind = type(field.default)
        if issubclass(kind, Hyperparameters) and new in kind.__dataclass_fields__:
            return f"; give {part}=rp.{kind.__name__}({new}=…)"
    return ""


class Hyperparameters(eqx.Module, Registered):
    """A module of hyperparameters that answers a misspelt, misplaced or old name of a field in one line."""

    def __new__(cls, *args: Any, **kwargs: Any):
        """Refuse fields by their old names."""
        fields = cls.__dataclass_fields__
        for name in kwargs:
            if name in fields or name in inspect.signature(cls.__init__).parameters:
                continue
            if line := renamed_line(name):
                raise RiskpathError(f"{cls.__name__}: {line}{_part_of(cls, name)}")
            hint = _part_of(cls, name) or did_you_mean(name, fields)
            raise RiskpathError(f"{cls.__name__} has no field {name!r}{hint}")
        return super().__new__(cls)

    def __repr__(self) -> str:
        return changed_settings(self)

    def describe(self) -> str:
        """Return all settings as a table; those that differ from the default name it."""
        return describe_settings(self)

    def __getattr__(self, name: str) -> Any:
        """Answer an unknown attribute with its new name, if it has one."""
        line = None if name.startswith("__") else renamed_line(name)
        raise AttributeError(line or f"{type(self).__name__!r} object has no attribute {name!r}")
