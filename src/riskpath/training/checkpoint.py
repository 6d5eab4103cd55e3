"""Runs on disk, so that training continues bit for bit: writing, reading, and a `Checkpointer` for `train`.

A checkpoint is a folder: `header.json` describes what was trained (readable by people, too), `state.eqx` holds all
arrays, `curve.json` the learning curve. Nothing in it is ever executed: there is no pickle, and a class is looked up
among those that are defined in the process, never imported by its name. `atomic_dir.py` ensures that there is always a
complete checkpoint.
"""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.agents.experience import Logged
from riskpath.envs.environment import Environment
from riskpath.envs.finite import as_arrays
from riskpath.envs.vector import Loss
from riskpath.errors import RiskpathError
from riskpath.evaluation.packing import is_key
from riskpath.files import disk_errors
from riskpath.training.atomic_dir import (
    CURVE,
    HEADER,
    STATE,
    digest,
    find_folder,
    free_folder,
    json_digest,
    replace_folder,
    synced,
)
from riskpath.training.codec import UnknownClass, decode, encode, encode_known
from riskpath.training.inputs import as_environment, gymnasium_sources, padded
from riskpath.training.lanes import Lanes, is_swept, stack, start
from riskpath.training.logged import logged_experience
from riskpath.training.run_state import RunState
from riskpath.validation import given, require_counts, require_positive
from riskpath.version import versions

FORMAT, VERSION = "riskpath run", 4
READERS = {1: "0.1", 2: "0.2", 3: "0.3"}
"""Which version of riskpath reads an older format."""


def write_checkpoint(run: RunState, path: str | Path, overwrite: bool = True) -> None:
    """Write all of a run to a folder; only an older checkpoint is replaced, and only if `overwrite` is true."""
    place = free_folder(path, overwrite)
    arrays = eqx.filter(_plain_arrays(run.lanes), eqx.is_array)
    header, curve = _describe(run), encode_known("its curve", run.curve)
    with disk_errors(f"cannot save to {path}"), replace_folder(place) as part:
        with synced(part / STATE) as file:
            eqx.tree_serialise_leaves(file, arrays)
        with synced(part / CURVE) as file:
            file.write(json.dumps(curve, allow_nan=False).encode())
        sums = {name: digest(part / name) for name in (STATE, CURVE)} | {HEADER: json_digest(header)}
        with synced(part / HEADER) as file:
            entries = {**header, "checksums": sums}.items()
            lines = (f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in entries)
            file.write("{{\n{}\n}}\n".format(",\n".join(lines)).encode())


def read_checkpoint(path: str | Path, agent: Agent | Sequence[Agent] | None, env: Any) -> dict[str, Any]:
    """Return the fields of a saved run; agents and environments are taken from the file unless they are given."""
    folder = find_folder(path)
    header, curve = _read_header(folder, path)
    as_list = lambda value: list(value) if isinstance(value, list | tuple) else [value]
    with _one_line(path, "damaged", "agent"):
        count, sizes = len(header["agents"]), (header["seeds"], header["num_envs"])
        agents = [decode(one) for one in header["agents"]] if agent is None else as_list(agent)
    with _one_line(path, "damaged", "env"):
        known = [decode(one) for one in header["environments"]] if env is None else []
        environments = [known[number] for number in header["environment_of"]] if env is None else as_list(env)
        names = header["gymnasium"]
        unnamed = bool(names) and (None in names or any(":" in name for name in names))
    if unnamed and env is None:  # a file must not lead to an import
        raise RiskpathError(f"{path} was trained in a Gymnasium environment without a plain id: load with env=…")
    sources = gymnasium_sources(list(names) if env is None else env, count) if names else []
    if sources:
        environments = [source.environment for source in sources]
    elif env is not None:
        environments = [as_environment(e) for e in (environments if len(environments) > 1 else environments * count)]
    for name, things in (("agent", agents), ("env", environments)):
        if len(things) != count:
            raise RiskpathError(f"{path} has {count} settings; give one {name} for each, got {len(things)}")
    environments = environments if sources else padded(environments)
    named = " and ".join(name for name, thing in (("agent", agent), ("env", env)) if thing is not None)
    with _one_line(path, f"not a run of the {named} given" if named else "damaged"):
        for one, environment in zip(agents, environments, strict=True):
            one.require_actions(environment.spec)
        return {
            "agents": agents,
            "environments": environments,
            "seeds": sizes[0],
            "lanes": _read_lanes(folder / STATE, agents, environments, *sizes, header.get("data")),
            "curve": decode(curve),
            "plan": decode(header["plan"]),
            "sources": sources,
            "first_seed": header.get("first_seed", 0),
            "losses": [Loss(*loss) for loss in header.get("losses", [])],
        }


@dataclasses.dataclass
class Checkpointer:
    """Saves a run at intervals while it is trained."""

    path: str | Path
    every_seconds: float | None = 300.0
    """Save when this time has passed since the last save; None to count steps only."""
    every_steps: int | None = None
    """Save whenever a multiple of this number of environment steps is passed."""
    overwrite: bool = False
    """Replace another run that was saved there before."""
    _at: float = dataclasses.field(default_factory=lambda: time.monotonic(), init=False, repr=False)
    _steps: int | None = dataclasses.field(default=None, init=False, repr=False)
    _run: RunState | None = dataclasses.field(default=None, init=False, repr=False)
    _saving: Any = dataclasses.field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self):
        free_folder(self.path)  # not after hours of training
        require_counts(**given(every_steps=self.every_steps))
        require_positive(**given(every_seconds=self.every_seconds))

    def begin(self, run: RunState, continued: bool) -> None:
        """Save before training starts; refuse to replace a run that is not being continued."""
        if self._steps is None and not (self.overwrite or continued):
            free_folder(self.path, overwrite=False)
        self.save(run)

    def save_if_due(self, run: RunState) -> bool:
        """Save after a chunk if it is time to."""
        every = self.every_steps
        if every is not None and run.steps // every > (self._steps or 0) // every:
            self.save(run)
            return True
        return self.save_if_late(run)

    def save_if_late(self, run: RunState) -> bool:
        """Save within a chunk if the time between two saves has passed."""
        late = self.every_seconds is not None and time.monotonic() - self._at >= self.every_seconds
        if late:
            self.save(run)
        return late

    def save(self, run: RunState) -> None:
        """Save, unless the last save was at the same step."""
        with self._saving:
            if self._steps != run.steps:
                write_checkpoint(run, self.path)
            self._at, self._steps, self._run = time.monotonic(), run.steps, run

    def save_last(self) -> RunState | None:
        """Save the run that is being trained and return it, from another thread; None if there is none yet."""
        if self._run is not None:
            self.save(self._run)
        return self._run


def _describe(run: RunState) -> dict[str, Any]:
    """Return the header without its checksums."""
    environments = {id(env): env for env in run.environments}  # settings often share theirs
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions(), "equinox": eqx.__version__},
        "risks": [str(agent.risk) for agent in run.agents],
        "steps": run.steps,
        "seeds": run.seeds,
        "first_seed": run.first_seed,
        "num_envs": run.lanes.num_envs,
        "data": len(run.lanes.store.rows) if isinstance(run.lanes.experience, Logged) else None,
        "random": str(jax.random.key_impl(run.lanes.keys)),
        "plan": encode(run.plan),
        "losses": run.losses,
        "agents": [encode(agent) for agent in run.agents],
        # A Gymnasium environment does not reveal its state: it starts a new episode.
        "gymnasium": [source.name for source in run.sources],
        "environments": [] if run.sources else [encode(env) for env in environments.values()],
        "environment_of": [] if run.sources else [list(environments).index(id(env)) for env in run.environments],
    }


def _read_header(folder: Path, path: str | Path) -> tuple[dict[str, Any], Any]:
    """Return header and curve of a checkpoint that is complete and of this format."""
    try:
        header = json.loads((folder / HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        raise RiskpathError(f"{path} is not a saved run: its {HEADER} cannot be read") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RiskpathError(f"{path} is not a saved run: its {HEADER} is of something else")
    if header.get("version") != VERSION:
        version = header.get("version")
        other = f"riskpath {READERS[version]} reads it" if version in READERS else "a newer riskpath reads it"
        raise RiskpathError(f"{path} has format {version!r}, but this riskpath reads format {VERSION}: {other}")
    with _one_line(path, "damaged"):
        sums = header.pop("checksums")
        own = {name: digest(folder / name) for name in (STATE, CURVE)} | {HEADER: json_digest(header)}
        for name, value in own.items():
            if sums[name] != value:
                raise ValueError(f"the checksum of {name} is wrong")
        curve = json.loads((folder / CURVE).read_bytes())
    if header.get("random") != (own := str(jax.random.key_impl(jax.random.key(0)))):
        kinds = f"{header.get('random')!r} random numbers, JAX is set to {own!r}"
        raise RiskpathError(f"{path} was trained with {kinds}: change jax_default_prng_impl")
    return header, curve


def _read_lanes(
    file: Path, agents: list[Agent], environments: list[Environment], seeds: int, num_envs: int, data: int | None
) -> Lanes:
    """Return the state of training, if its shapes are those of these agents in these environments."""
    experience = None if data is None else logged_experience(agents[0], environments[0].spec, data)
    like = eqx.filter_eval_shape(
        lambda *given: start(*given, experience=experience), agents, environments, seeds, num_envs, 0
    )
    with file.open("rb") as source:
        plain = eqx.tree_deserialise_leaves(source, eqx.filter_eval_shape(_plain_arrays, like), _read_array)
        if source.read(1):
            raise ValueError(f"{STATE} is longer than expected")
    arrays = [as_arrays(env) for env in environments]
    numbers = stack(agents, seeds, is_swept), stack(arrays, seeds, eqx.is_array)
    if not bool(eqx.tree_equal((plain.agent, plain.env), _plain_arrays(numbers))):
        raise ValueError("its hyperparameters or parameters differ")
    return jax.tree.map(lambda x, kind: jax.random.wrap_key_data(x) if is_key(kind) else x, plain, like)


def _read_array(file: Any, like: Any) -> Any:
    """Read one array; its shape is checked before its numbers are read, so a wrong one costs no memory."""
    if not isinstance(like, jax.ShapeDtypeStruct):
        return like
    at = file.tell()
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{STATE} holds something else than arrays")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if (shape, dtype) != (like.shape, like.dtype):
        found, belongs = f"{dtype}{list(shape)}", f"{like.dtype}{list(like.shape)}"
        raise ValueError(f"{STATE} has {found} where {belongs} belongs: an environment of other sizes?")
    file.seek(at)
    return jax.device_put(np.load(file, allow_pickle=False))


def _plain_arrays(tree: Any) -> Any:
    """Return the tree with random keys as numbers and all arrays as JAX arrays."""
    plain = lambda x: jax.random.key_data(x) if is_key(x) else jnp.asarray(x) if isinstance(x, np.ndarray) else x
    return jax.tree.map(plain, tree)


@contextlib.contextmanager
def _one_line(path: str | Path, why: str, ask: str = "") -> Iterator[None]:
    """Turn any error that a damaged file causes into one line."""
    try:
        yield
    except UnknownClass as unknown:
        function = str(unknown).startswith("function ")
        why = "which a file cannot hold:" if function else "which is not defined in this process: import it first, or"
        raise RiskpathError(f"{path} holds a {unknown}, {why} load with {ask}=…") from None
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None and str(cause).startswith("Error at leaf"):  # Equinox wraps the cause
            cause = cause.__cause__
        reason = next(iter(str(cause).splitlines()), type(cause).__name__)
        raise RiskpathError(f"{path} is {why}: {reason}") from error
