"""Saved runs: what comes back is the same to the last bit, whatever dies when, and a wrong file is one line."""

import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import FiniteEnvironment, as_finite, finite
from riskpath.registry import CLASSES, full_name
from riskpath.risk.tabulated import Tabulated
from riskpath.training import atomic_dir as folders
from riskpath.training import checkpoint as saving
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.codec import decode, encode
from riskpath.training.inputs import as_environment, as_environments
from riskpath.training.lanes import start
from riskpath.training.run import load
from tests.training.fakes import Counting, fake_run

NETWORK = rp.Network(hidden=(4,), history_size=4, window=3)
SIZES: dict[str, Any] = {
    "learning_starts": 0,
    "batch_size": 4,
    "num_quantiles": 4,
    "num_target_quantiles": 4,
    "num_action_quantiles": 4,
}
FAST = rp.Training(**SIZES, target_update_interval=10, buffer_size=70)
ACTOR = rp.Training(**SIZES, target_update_interval=5, buffer_size=70, train_freq=2)
AGENTS = {
    "IQN": lambda risk: rp.IQN(risk, network=NETWORK, training=dataclasses.replace(FAST, learning_starts=40)),
    "CVaRDRL": lambda risk: rp.CVaRDRL(risk, network=NETWORK, training=FAST),
    "QRSRM": lambda risk: rp.QRSRM(risk, network=NETWORK, training=FAST),
    "TQL": lambda risk: rp.TQL(risk, network=NETWORK, training=FAST),
    "Adaptive": lambda risk: rp.Adaptive(risk, network=NETWORK, training=FAST, selection_episodes=10),
    "AdaptiveContinuous": lambda risk: rp.AdaptiveContinuous(
        risk, network=NETWORK, training=ACTOR, selection_episodes=10
    ),
    "IQTD3": lambda risk: rp.IQTD3(risk, network=NETWORK, training=ACTOR),
    "TQLContinuous": lambda risk: rp.TQLContinuous(risk, convolved_taus=4, network=NETWORK, training=ACTOR),
}


def begin(name: str, steps: int, **options: Any) -> rp.Run:
    """Chunks of one target period each, for any number of steps below 200: one program serves all runs of an agent."""
    agents = [AGENTS[name](rp.CVaR(level)) for level in (0.25, 0.5)]
    worlds = [rp.RiskyMountainCar(c, 15) for c in (0.1, 0.5)] if agents[0].actions == "continuous" else rp.RiskyGrid()
    return rp.train(agents, worlds, steps=steps, seeds=2, num_envs=2, **options)


def bits(lanes: Any) -> tuple[Any, list[tuple[str, bool, bytes]]]:
    """Structure, types and bytes: everything that may matter to a compiled program."""
    leaves, structure = jax.tree.flatten(lanes)
    arrays = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return structure, [(str(x.dtype), getattr(x, "weak_type", False), np.asarray(x).tobytes()) for x in arrays]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Any:
    """Of each agent: where it was saved at step 60, and the run itself at step 100."""

    @functools.cache
    def trained(name: str) -> tuple[Path, rp.Run]:
        folder = tmp_path_factory.mktemp("runs") / name
        keeper = Checkpointer(folder, every_seconds=None, every_steps=60)
        watch = lambda run: {"sum": np.float32(run.lanes.return_so_far.sum()), "at": (run.steps, math.inf)}
        run = begin(name, 100, evaluate_every=20, evaluator=watch, progress=lambda run, _: keeper.save_if_due(run))
        return folder, run

    return trained


@pytest.fixture
def saved(runs, tmp_path, unchecked) -> Path:
    """A copy of a save to do harm to."""
    return shutil.copytree(runs("TQL")[0], tmp_path / "a run")


# With a history, with several candidates, and with continuous actions; the states of the others have similar parts.
SHORT = ("Adaptive",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.long) for name in AGENTS]
)
def test_all_that_training_knows_comes_back(name, tmp_path, unchecked):
    agents = [AGENTS[name](rp.CVaR(level)) for level in (0.25, 0.5)]
    world = as_environment(rp.RiskyMountainCar(0.1, 15) if agents[0].actions == "continuous" else "RiskyGrid")
    run = rp.Run(agents, [world] * 2, 2, start(agents, [world] * 2, 2, 2, 0))
    run.save(tmp_path / "run")
    back = load(tmp_path / "run")
    assert bits(back.lanes) == bits(saving._plain_arrays(run.lanes))
    assert eqx.tree_equal(back.agents, run.agents, typematch=True)


@pytest.mark.parametrize("given", [False, True])
def test_problems_of_different_sizes_come_back(given, tmp_path, unchecked):
    problems = [rp.RandomMDP(seed=3, depth=4), rp.RandomMDP(seed=7, depth=4)]
    agents: list[rp.Agent] = [Counting(rp.CVaR(0.25))] * 2  # the test before has the states of an agent of the library
    environments, _ = as_environments(problems, 2)
    assert len({len(as_finite(problem).tables.available) for problem in problems}) == 2
    run = rp.Run(agents, environments, 2, start(agents, environments, 2, 2, 0))
    run.save(tmp_path / "run")
    back = load(tmp_path / "run", env=problems) if given else load(tmp_path / "run")
    assert bits(back.lanes) == bits(saving._plain_arrays(run.lanes))
    assert (back.values() == run.values()).all()


# One agent with a history; one that chooses among its members is resumed in test_selection.py. The states of all
# others come back in the test before.
@pytest.mark.parametrize(
    "name", ["TQL", *(pytest.param(name, marks=pytest.mark.long) for name in ("IQN", "TQLContinuous", "Adaptive"))]
)
def test_a_resumed_run_is_the_uninterrupted_one(name, runs, unchecked):
    folder, whole = runs(name)
    run = load(folder)
    assert (run.steps, run.seeds, whole.steps) == (60, 2, 100)
    assert eqx.tree_equal(run.agents, whole.agents, typematch=True)
    assert encode(run.environments) == encode(whole.environments)
    assert run.curve == [point for point in whole.curve if point["step"] <= 60] != []
    assert type(run.curve[0]["sum"]) is np.float32
    assert bits(run.lanes) != bits(whole.lanes)
    assert bits(rp.train(run, steps=40).lanes) == bits(whole.lanes)


def test_what_was_loaded_works_as_a_run(runs, tmp_path, unchecked):
    folder, whole = runs("TQL")
    whole.save(tmp_path / "whole")
    run, start = load(tmp_path / "whole"), rp.RiskyGrid().cell(0, 0)
    assert bits(run.lanes) == bits(whole.lanes)
    assert (run.values() == whole.values()).all()
    assert run.policy(1, 1).estimate(start) == whole.policy(1, 1).estimate(start)
    assert rp.RiskyGrid().path(run.policy()) == rp.RiskyGrid().path(whole.policy())  # states are cells, not tuples
    header = json.loads((folder / "header.json").read_text())
    assert header["risks"] == ["cvar:0.25", "cvar:0.5"]
    assert header["agents"][0]["training"]["learning_rate"] == 1e-3
    assert len(header["environments"]) == 1
    assert run.environments[0] is run.environments[1]


def train_slowly(folder: str) -> None:
    """What the next test runs in a process of its own."""
    keeper = Checkpointer(folder, every_seconds=None, every_steps=1)
    begin("TQL", 190, progress=lambda run, _: (keeper.save_if_due(run), time.sleep(0.3)))


@pytest.mark.long  # tests/cli/test_run_commands.py kills a process, too
def test_killed_and_resumed(runs, tmp_path, unchecked):
    runs("TQL")  # compiled here, and for the other process, too
    folder, root = tmp_path / "run", Path(__file__).parents[2]
    code = f"from tests.training.test_checkpoint import train_slowly; train_slowly({str(folder)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    try:
        for _ in range(1200):
            assert child.poll() is None, "it ended before it was killed"
            if (folder / "header.json").exists() and header_of(folder).get("steps", 0) >= 60:
                break
            time.sleep(0.1)
    finally:
        child.kill()
    assert child.wait() == -signal.SIGKILL
    run = load(folder)
    assert 60 <= run.steps < 190
    assert bits(rp.train(run, steps=190 - run.steps).lanes) == bits(begin("TQL", 190).lanes)


def header_of(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "header.json").read_text())
    except FileNotFoundError:  # it is being replaced
        return {}


class Crash(BaseException):
    """Nobody handles this, as nobody handles a power cut."""


@pytest.mark.parametrize("moment", range(12))
def test_a_crash_at_any_moment_leaves_a_save(moment, saved, runs, monkeypatch):
    whole, calls = runs("TQL")[1], []

    def crashing(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(real)
            if len(calls) > moment:
                raise Crash
            return real(*args, **kwargs)

        return call

    def steps() -> int:
        return saving._read_header(folders.find_folder(saved), saved)[0]["steps"]

    with monkeypatch.context() as patch:
        for module, name in ((folders.os, "rename"), (folders.os, "fsync"), (folders.shutil, "rmtree")):
            patch.setattr(module, name, crashing(getattr(module, name)))
        if moment < 10:
            with pytest.raises(Crash):
                whole.save(saved)
        else:
            whole.save(saved)
    renamed = sum(call is folders.os.rename for call in calls[:moment])
    assert steps() == (100 if renamed == 2 else 60)
    if renamed == 1:
        assert not saved.exists()
        assert load(saved).steps == 60
    whole.save(saved)
    assert steps() == 100
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]


def edit(change: Any) -> Any:
    """Damage that is careful to get the checksums right."""

    def harm(folder: Path) -> None:
        header = json.loads((folder / "header.json").read_text())
        header.pop("checksums")
        change(header)
        sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("state.eqx", "curve.json")}
        sums["header.json"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
        (folder / "header.json").write_text(json.dumps({**header, "checksums": sums}))

    return harm


def write(name: str, change: Any, seal: bool = False) -> Any:
    def harm(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        if seal:
            edit(lambda header: None)(folder)

    return harm


def flip(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


class Payload:
    """Pickle would make a file of it."""

    def __reduce__(self):
        return (open, ("marker", "w"))


def objects(_: bytes) -> bytes:
    """An array of Python objects, which NumPy would unpickle if it were let."""
    file = io.BytesIO()
    np.save(file, np.array([Payload()], object), allow_pickle=True)
    return file.getvalue()


def whole_other(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("{}")


DAMAGE = {
    "no such path": (shutil.rmtree, "there is no saved run at"),
    "a file": (whole_other, "is a file"),
    "empty folder": (lambda folder: [file.unlink() for file in folder.iterdir()], "no header.json"),
    "no state": (lambda folder: (folder / "state.eqx").unlink(), "damaged: .*No such file"),
    "not JSON": (write("header.json", lambda content: content[:-9]), "header.json cannot be read"),
    "not text": (write("header.json", lambda _: b"\xff\x00"), "header.json cannot be read"),
    "endless JSON": (write("header.json", lambda _: b"[" * 100_000), "header.json cannot be read"),
    "foreign JSON": (write("header.json", lambda _: b'{"format": "other"}'), "of something else"),
    "a list": (write("header.json", lambda _: b"[]"), "of something else"),
    "from the future": (edit(lambda h: h.update(version=5)), "format 5, .* reads format 4: a newer riskpath reads it"),
    "from version 0.1": (edit(lambda h: h.update(version=1)), "format 1, .* reads format 4: riskpath 0.1 reads it"),
    "from version 0.2": (edit(lambda h: h.update(version=2)), "format 2, .* reads format 4: riskpath 0.2 reads it"),
    "from version 0.3": (edit(lambda h: h.update(version=3)), "format 3, .* reads format 4: riskpath 0.3 reads it"),
    "other random numbers": (edit(lambda header: header.update(random="rbg")), "jax_default_prng_impl"),
    "changed header": (write("header.json", lambda c: c.replace(b"0.25", b"0.35")), "checksum of header.json"),
    "changed curve": (write("curve.json", flip), "checksum of curve.json"),
    "truncated state": (write("state.eqx", lambda content: content[:-9]), "checksum of state.eqx"),
    "flipped bit": (write("state.eqx", flip), "checksum of state.eqx"),
    "truncated and sealed": (write("state.eqx", lambda content: content[:-9], seal=True), "damaged"),
    "longer and sealed": (write("state.eqx", lambda content: content + b"0", seal=True), "is longer than expected"),
    "pickle": (write("state.eqx", lambda _: pickle.dumps(Payload())), "checksum of state.eqx"),
    "pickle, sealed": (write("state.eqx", lambda _: pickle.dumps(Payload()), seal=True), "damaged: .*magic"),
    "objects, sealed": (write("state.eqx", objects, seal=True), "has object.* where float32.* belongs"),
    "a call": (
        edit(lambda h: h["agents"].__setitem__(0, {"$class": "os.system", "command": "touch marker"})),
        "agent=",
    ),
    "other module": (
        edit(lambda h: h["agents"][0].update({"$class": "riskpath.training.checkpoint.Checkpointer"})),
        "agent=",
    ),
    "other environment": (edit(lambda h: h["environments"].__setitem__(0, {"$object": "os.system"})), "env="),
    "other sizes": (
        edit(lambda h: h["agents"][0]["training"].update(buffer_size=10**9)),
        r"has float32\[35, 8, 10\] where",
    ),
    "other numbers": (edit(lambda h: h["agents"][0].update(discount=0.5)), "its hyperparameters or parameters differ"),
    "impossible number": (edit(lambda h: h["agents"][0]["risk"].update(level=7.0)), r"level must be in \(0, 1\]"),
    "wrong type": (edit(lambda h: h["agents"][0].update(risk="cvar:0.1")), "damaged"),
    "unknown field": (edit(lambda h: h["agents"][0].update(colour=1)), "TQL has no colour"),
    "no agents": (edit(lambda h: h.pop("agents")), "damaged"),
    "odd sizes": (edit(lambda h: h.update(seeds="2")), "damaged"),
    "endless episodes": (
        edit(lambda h: h["environments"][0]["outcomes"][0].__setitem__(2, [[1.0, 0.0, 0]])),
        "need not end",
    ),
}


@pytest.mark.parametrize("harm", DAMAGE)
def test_a_wrong_file_is_one_line(harm, saved, monkeypatch):
    damage, message = DAMAGE[harm]
    monkeypatch.chdir(saved.parent)
    damage(saved)
    with pytest.raises(rp.RiskpathError, match=message) as error:
        load(saved)
    assert "\n" not in str(error.value)
    assert str(saved) in str(error.value)
    assert not Path("marker").exists()


class Pair(NamedTuple):
    """A state of somebody's own."""

    name: str


class OwnCar(rp.RiskyMountainCar):
    """A user's own environment, with a NumPy array."""

    extra: Any = eqx.field(default_factory=lambda: np.arange(3))


def fresh(agent: rp.Agent, env: Any) -> rp.Run:
    world = as_environment(env)
    return rp.Run([agent], [world], 1, start([agent], [world], 1, 1, 0))


def mdp(first: Any, last: Any = "end") -> rp.FiniteMDP:
    third = [(1 / 3, float(number), last) for number in range(3)]
    return rp.FiniteMDP.from_outcomes({(first, True): third, (first, 0.5): [(1.0, 0.1, first)]}, first, horizon=3)


OWN_RISK = rp.IQN(rp.Distortion(lambda tau: tau**2), network=NETWORK, training=FAST)
UNKNOWN = "which is not defined in this process: import it first, or load with"
OWN = {
    "measure": (OWN_RISK, lambda: "ThreeState", "which a file cannot hold: load with agent="),
    "states": (AGENTS["IQN"](rp.Mean()), lambda: mdp(Pair("s")), f"{UNKNOWN} env="),
    "sets": (AGENTS["IQN"](rp.Mean()), lambda: mdp(frozenset("s")), f"{UNKNOWN} env="),
}


@pytest.mark.parametrize("what", OWN)
def test_what_is_your_own_is_asked_for(what, tmp_path, unchecked):
    agent, make, message = OWN[what]
    env = make()
    run = fresh(agent, env)
    run.save(tmp_path / "run")
    with pytest.raises(rp.RiskpathError, match=message) as error:
        load(tmp_path / "run")
    assert "\n" not in str(error.value)
    name, given = message.split()[-1][:-1], {"agent": agent, "env": env}
    assert bits(load(tmp_path / "run", **{name: given[name]}).lanes)[1] == bits(saving._plain_arrays(run.lanes))[1]
    others = {"agent": dataclasses.replace(agent, discount=0.1)}
    if what == "measure":
        with pytest.raises(rp.RiskpathError, match=f"is not a run of the {name} given"):
            load(tmp_path / "run", **{name: others[name]})
        with pytest.raises(rp.RiskpathError, match=f"has 1 settings; give one {name} for each, got 2"):
            load(tmp_path / "run", **{name: [given[name]] * 2})


def test_own_classes_are_found_if_they_are_defined_in_the_process(tmp_path, monkeypatch, unchecked):
    agent, env = AGENTS["IQTD3"](rp.Mean()), OwnCar(0.5, 15)
    run = fresh(agent, env)
    run.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again.environments[0]) is OwnCar
    assert bits(again.lanes)[1] == bits(saving._plain_arrays(run.lanes))[1]
    monkeypatch.delitem(CLASSES, full_name(OwnCar))  # as in a process that does not define it
    with pytest.raises(rp.RiskpathError, match="not defined in this process: import it first, or load with env="):
        load(tmp_path / "run")
    assert bits(load(tmp_path / "run", env=env).lanes)[1] == bits(again.lanes)[1]
    with pytest.raises(rp.RiskpathError, match="is not a run of the env given"):
        load(tmp_path / "run", env=OwnCar(0.4, 15))
    with pytest.raises(rp.RiskpathError, match=r"is not a run of the env given: .* needs continuous actions"):
        load(tmp_path / "run", env="RiskyGrid")


@pytest.mark.parametrize("overwrite", [False, True])
def test_training_does_not_replace_another_run(overwrite, runs, tmp_path, unchecked):
    folder = shutil.copytree(runs("TQL")[0], tmp_path / "run")
    if overwrite:
        begin("TQL", 20, checkpoint=Checkpointer(folder, overwrite=True))
        assert load(folder).steps == 20
        return
    with pytest.raises(rp.RiskpathError, match=r"there is a saved run at .*: continue it with") as refused:
        begin("TQL", 20, checkpoint=folder)
    assert "\n" not in str(refused.value)
    assert load(folder).steps == 60
    assert rp.train(load(folder), steps=20, checkpoint=folder).steps == load(folder).steps == 80


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.0, 0.1 + 0.2, -0.0, math.inf, -math.inf, math.nan, 5e-324, "é\ud800", "$x"),
        *([], (), (1, (2.0, [])), {}, {"$tuple": 1}, {"a": {(1, 2): "b"}}),
        *(np.float64(0.1), np.int64(3), np.bool_(True), np.array([[math.nan, 0.1]]), np.zeros((0, 3), np.uint8)),
        *(jnp.float32(0.1), jnp.arange(3), jnp.array(True)),
        *(rp.PAPER_NETWORK, rp.PAPER_TRAINING, rp.RiskyGrid(forks=2), rp.RiskyGrid().cell(0, 1), rp.ThreeState()),
        *(rp.Mean(), rp.Wang(-0.75), rp.POW(-2.0), rp.CPW(0.71), rp.CVaR(jnp.array([0.1, 0.3]))),
        rp.Mixture([(0.7, rp.Mean()), (0.3, rp.CVaR(1 / 3))]),
        Tabulated(rp.CPW(0.71), 33),
        finite(mdp(("s", 1), ("t", False))),
        as_finite(rp.Liquidation(lots=2, steps=2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_as_they_were(value):
    back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert jax.tree.structure(back) == jax.tree.structure(value) or isinstance(value, eqx.Module)
    for old, new in zip(jax.tree.leaves(value), jax.tree.leaves(back), strict=True):
        assert type(new) is type(old)
        if isinstance(old, jax.Array | np.ndarray | np.generic):
            assert (new.dtype, new.shape) == (old.dtype, old.shape)
        same = np.asarray(old).tobytes() == np.asarray(new).tobytes() if not isinstance(old, str) else old == new
        assert same
    if isinstance(value, FiniteEnvironment):
        assert value.problem is not None
        assert back.problem.outcomes == value.problem.outcomes
        assert repr(back.problem) == repr(value.problem)  # 1 and True are equal, too
        assert back.problem.features == value.problem.features


def test_only_a_save_is_replaced(runs, tmp_path, unchecked):
    run = runs("TQL")[1]
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    file.write_text("x")
    for path, message in ((full, "contains other files than a saved run"), (file, "it is a file")):
        for attempt in (lambda path=path: run.save(path), lambda path=path: Checkpointer(path)):
            with pytest.raises(rp.RiskpathError, match=message):
                attempt()
    assert (full / "thesis.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    run.save(tmp_path / "empty")
    (tmp_path / "empty" / "notes.txt").write_text("mine")
    with pytest.raises(rp.RiskpathError, match="contains other files"):
        run.save(tmp_path / "empty")
    with pytest.raises(rp.RiskpathError, match=r"cannot save to .*Not a directory"):
        run.save(file / "below")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for attempt in (lambda: rp.load(tmp_path / "loop"), lambda: run.save(tmp_path / "loop")):
        with pytest.raises(rp.RiskpathError, match=r"^cannot (load|save to) .*loop: Too many levels"):
            attempt()
    for attempt in (lambda: rp.load("a\0b"), lambda: run.save("a\0b"), lambda: Checkpointer("a\0b")):
        with pytest.raises(rp.RiskpathError, match=r"^cannot (load|save to) a.0b: a path cannot contain a null"):
            attempt()


@pytest.mark.parametrize("name", ["tree_serialise_leaves", "fsync"])
def test_a_full_disk_keeps_the_last_checkpoint_and_leaves_no_part_of_the_next(tmp_path, monkeypatch, name, unchecked):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = fresh(AGENTS["IQN"](rp.Mean()), "RiskyGrid")
    run.save(tmp_path / "run")
    before = (tmp_path / "run" / "header.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(eqx if name.startswith("tree") else os, name, full)
        with pytest.raises(rp.RiskpathError, match=r"^cannot save to .*: No space left on device$"):
            run.save(tmp_path / "run")
    assert (tmp_path / "run" / "header.json").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_a_curve_that_json_cannot_hold_is_refused_in_time(runs, tmp_path, unchecked):
    run = dataclasses.replace(runs("TQL")[1], curve=[{"step": 1, "note": object()}])
    with pytest.raises(rp.RiskpathError, match=r"its curve holds a builtins.object"):
        run.save(tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("every", "saves"),
    [
        ({"every_seconds": None, "every_steps": 100}, [100, 210, 300, 400]),
        ({"every_seconds": None, "every_steps": 1}, [40, 100, 150, 210, 290, 300, 400]),
        ({"every_seconds": 2.5}, [150, 300]),
        ({"every_seconds": 2.5, "every_steps": 300}, [150, 300]),
        ({"every_seconds": None}, []),
    ],
)
def test_a_checkpointer_saves_when_it_is_time(every, saves, tmp_path, monkeypatch, unchecked):
    seen: list[int] = []
    now = [0.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(saving, "write_checkpoint", lambda run, path: seen.append(run.steps))
    fake = lambda steps: fake_run(steps=steps)
    keeper = Checkpointer(tmp_path / "run", **every)
    for steps in (40, 100, 150, 210, 290, 300, 400):
        now[0] += 1.0
        assert keeper.save_if_due(fake(steps)) == (steps in saves)
    assert seen == saves
    for _ in range(2):
        keeper.save(fake(400))
    assert seen == (saves if 400 in saves else [*saves, 400])
    with pytest.raises(rp.RiskpathError, match="every_steps must be at least 1, got 0"):
        Checkpointer(tmp_path / "run", every_steps=0)
