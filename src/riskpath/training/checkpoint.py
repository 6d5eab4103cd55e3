"""Runs on disk, so that training goes on bit for bit where it was: `save`, `load`, and a `Checkpointer` for `train`.

A saved run is a folder: `header.json` says what was trained (to be read by people, too), `state.eqx` holds all arrays,
`curve.json` the learning curve. Nothing in it is ever executed: no pickle, and a class is looked up among those of this
library, never imported by its name. `folders.py` sees to it that there is always a complete save.
"""

import contextlib
import dataclasses
import hashlib
import json
import platform
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import riskpath
from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.training import fused_loop as loop
from riskpath.training.atomic_dir import CURVE, HEADER, STATE, digest, found, free, renewed, synced
from riskpath.training.codec import Unknown, decode, encode
from riskpath.training.inputs import as_environment, gymnasium_environments
from riskpath.training.run import Run
from riskpath.validation import given, require_counts, require_positive

FORMAT, VERSION = "riskpath run", 1


def save(run: Run, path: str | Path) -> None:
    """Writes all of a run to a folder; an older save there is replaced, anything else is refused."""
    place = free(path)
    header, curve = _describe(run), _kept("its curve", run.curve)
    try:
        with renewed(place) as part:
            with synced(part / STATE) as file:
                eqx.tree_serialise_leaves(file, eqx.filter(_plain_arrays(run.lanes), eqx.is_array))
            with synced(part / CURVE) as file:
                file.write(json.dumps(curve, allow_nan=False).encode())
            sums = {name: digest(part / name) for name in (STATE, CURVE)} | {HEADER: _header_digest(header)}
            with synced(part / HEADER) as file:
                file.write((_text({**header, "checksums": sums}) + "\n").encode())
    except OSError as error:
        raise RiskpathError(f"cannot save to {path}: {error.strerror or error}") from None


def load(path: str | Path, *, agent: Agent | Sequence[Agent] | None = None, env: Any = None) -> Run:
    """A saved run; `train` goes on with it as if it had never stopped.

    Args:
        path: The folder.
        agent: The agent, or one for each setting; needed only if its class, or that of its measure, is your own.
        env: The environment, or one for each setting; needed only if it is your own.
    """
    folder = found(path)
    header, curve = _checked(folder, path)
    with _refusing(path, "damaged", "agent"):
        count, sizes = len(header["agents"]), (header["seeds"], header["envs"])
        agents = [decode(one) for one in header["agents"]] if agent is None else _listed(agent)
    with _refusing(path, "damaged", "env"):
        known = [decode(one) for one in header["environments"]] if env is None else []
        worlds = [known[number] for number in header["environment_of"]] if env is None else _listed(env)
        names = header["gymnasium"]
        if names and env is None and (None in names or any(":" in name for name in names)):
            raise Unknown("Gymnasium environment of your own")  # a module's name would be imported
    outside = gymnasium_environments(list(names) if env is None else env, count) if names else []
    if outside:
        worlds = [one.world for one in outside]
    elif env is not None:
        worlds = [as_environment(one) for one in (worlds if len(worlds) > 1 else worlds * count)]
    for name, things in (("agent", agents), ("env", worlds)):
        if len(things) != count:
            raise RiskpathError(f"{path} has {count} settings; give one {name} for each, got {len(things)}")
    given = " and ".join(name for name, thing in (("agent", agent), ("env", env)) if thing is not None)
    with _refusing(path, f"not a run of the {given} given" if given else "damaged"):
        lanes = _read_lanes(folder / STATE, agents, worlds, *sizes)
        rest = {name: decode(value) for name, value in header["run"].items()}
        return Run(agents, worlds, sizes[0], lanes, curve=decode(curve), outside=outside, **rest)


@dataclasses.dataclass
class Checkpointer:
    """Saves a run now and then while it is trained: `maybe` is for after every chunk, `now` for the end."""

    path: str | Path
    """The folder."""
    every_seconds: float | None = 300.0
    """Save when so much time has passed since the last one; None to go by steps alone."""
    every_steps: int | None = None
    """Save whenever a multiple of so many environment steps is passed."""
    _at: float = dataclasses.field(default_factory=lambda: time.monotonic(), init=False, repr=False)
    _steps: int | None = dataclasses.field(default=None, init=False, repr=False)

    def __post_init__(self):
        free(self.path)  # not after hours of training
        require_counts(**given(every_steps=self.every_steps))
        require_positive(**given(every_seconds=self.every_seconds))

    def maybe(self, run: Run) -> bool:
        """Saves if it is time to."""
        late = self.every_seconds is not None and time.monotonic() - self._at >= self.every_seconds
        every = self.every_steps
        due = late or (every is not None and run.steps // every > (self._steps or 0) // every)
        if due:
            self.now(run)
        return due

    def now(self, run: Run) -> None:
        """Saves, unless the last save was of this very step."""
        if self._steps != run.steps:
            save(run, self.path)
        self._at, self._steps = time.monotonic(), run.steps


def _describe(run: Run) -> dict[str, Any]:
    """The header, all but its checksums."""
    worlds = {id(world): world for world in run.worlds}  # settings often share theirs
    rest = [field.name for field in dataclasses.fields(Run) if not field.name.startswith("_")]  # what is left of it
    rest = [name for name in rest if name not in ("agents", "worlds", "seeds", "lanes", "curve", "outside", "row")]
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "riskpath": riskpath.__version__,
            "jax": jax.__version__,
            "equinox": eqx.__version__,
            "python": platform.python_version(),
        },
        "risks": [str(agent.risk) for agent in run.agents],
        "steps": run.steps,
        "seeds": run.seeds,
        "envs": run.lanes.time.shape[1],
        "random": str(jax.random.key_impl(run.lanes.keys)),
        "run": {name: _kept(name, getattr(run, name)) for name in rest},
        "agents": [encode(agent) for agent in run.agents],
        # Nobody can ask a Gymnasium environment where in its episode it is: those begin anew.
        "gymnasium": [one.name for one in run.outside],
        "environments": [] if run.outside else [encode(world) for world in worlds.values()],
        "environment_of": [] if run.outside else [list(worlds).index(id(world)) for world in run.worlds],
    }


def _checked(folder: Path, path: str | Path) -> tuple[dict[str, Any], Any]:
    """Header and curve of a save that is whole, ours, and not from the future."""
    try:
        header = json.loads((folder / HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        raise RiskpathError(f"{path} is not a saved run: its {HEADER} cannot be read") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RiskpathError(f"{path} is not a saved run: its {HEADER} is of something else")
    if header.get("version") != VERSION:
        raise RiskpathError(f"{path} has format {header.get('version')!r}; this version of riskpath reads {VERSION}")
    with _refusing(path, "damaged"):
        sums = header.pop("checksums")
        own = {name: digest(folder / name) for name in (STATE, CURVE)} | {HEADER: _header_digest(header)}
        for name, value in own.items():
            if sums[name] != value:
                raise ValueError(f"the checksum of {name} is wrong")
        curve = json.loads((folder / CURVE).read_bytes())
    if header.get("random") != (own := str(jax.random.key_impl(jax.random.key(0)))):
        kinds = f"{header.get('random')!r} random numbers, JAX is set to {own!r}"
        raise RiskpathError(f"{path} was trained with {kinds}: change jax_default_prng_impl")
    return header, curve


def _read_lanes(file: Path, agents: list[Agent], worlds: list[Environment], seeds: int, envs: int) -> loop.Lanes:
    """The state of training, if it has the shapes that these agents have in these environments."""
    like = eqx.filter_eval_shape(loop.start, agents, worlds, seeds, envs, 0)
    with file.open("rb") as source:
        plain = eqx.tree_deserialise_leaves(source, eqx.filter_eval_shape(_plain_arrays, like), _read_array)
        if source.read(1):
            raise ValueError(f"{STATE} goes on after its end")
    bare = [world.bare() for world in worlds]
    numbers = loop.stack(agents, seeds, loop.is_swept), loop.stack(bare, seeds, eqx.is_array)
    if not bool(eqx.tree_equal((plain.agent, plain.env), _plain_arrays(numbers))):
        raise ValueError("its numbers are others")
    return jax.tree.map(lambda x, kind: jax.random.wrap_key_data(x) if _is_key(kind) else x, plain, like)


def _read_array(file: Any, like: Any) -> Any:
    """One array; its shape is compared before its numbers are read, so a false one costs no memory."""
    if not isinstance(like, jax.ShapeDtypeStruct):
        return like
    at = file.tell()
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{STATE} holds something else than arrays")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if (shape, dtype) != (like.shape, like.dtype):
        raise ValueError(f"{STATE} has {dtype}{list(shape)} where {like.dtype}{list(like.shape)} belongs")
    file.seek(at)
    return jnp.array(np.load(file, allow_pickle=False))


def _plain_arrays(tree: Any) -> Any:
    """Random keys as the numbers they consist of, and all arrays as JAX'."""
    plain = lambda x: jax.random.key_data(x) if _is_key(x) else jnp.asarray(x) if isinstance(x, np.ndarray) else x  # noqa: E731
    return jax.tree.map(plain, tree)


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _kept(what: str, value: Any) -> Any:
    """Encoded, if it can be decoded."""
    encoded = encode(value)
    try:
        decode(encoded)
    except Unknown as unknown:
        raise RiskpathError(
            f"cannot save the run: {what} holds a {unknown}; use numbers, text, lists or arrays"
        ) from None
    return encoded


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


@contextlib.contextmanager
def _refusing(path: str | Path, why: str, ask: str = "") -> Iterator[None]:
    """A file may be wrong in any way at all; whatever comes of it is one line."""
    try:
        yield
    except Unknown as unknown:
        hint = f"which has to come from your own program: load it with {ask}=…"
        raise RiskpathError(f"{path} holds a {unknown}, {hint}") from None
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None and str(cause).startswith("Error at leaf"):  # Equinox wraps what is wrong
            cause = cause.__cause__
        reason = next(iter(str(cause).splitlines()), type(cause).__name__)
        raise RiskpathError(f"{path} is {why}: {reason}") from error


def _text(value: Any, margin: str = "") -> str:
    """JSON that people can read: what is short, or a list of plain things, stays on a line."""
    line, inner = json.dumps(value, allow_nan=False), margin + "  "
    nested = any(isinstance(part, dict | list) for part in (value if isinstance(value, list) else ()))
    if len(line) + len(margin) <= 100 or not (nested or isinstance(value, dict)):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_text(part, inner)}" for key, part in value.items()]
    else:
        parts = [_text(part, inner) for part in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{last}"


def _header_digest(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
