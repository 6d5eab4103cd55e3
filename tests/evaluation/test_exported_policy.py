"""Exported policies answer as the policy itself does, one at a time and many at once, with and without the library."""

import functools
import json
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from jax import export

import riskpath as rp
from riskpath.serving.openapi import _observation_schema
from tests.evaluation.policies import BOXES, CAR, MAZE_ENV, NUMBERS, OBSERVED_ENV, TINY, gymnasium_like, untrained

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("unchecked_module")
POLICIES = {
    "tables": (lambda: untrained(rp.IQN(rp.CVaR(0.3), network=TINY), MAZE_ENV), ["a", "b", "b"]),
    "features, rewards": (lambda: untrained(rp.Adaptive(rp.CVaR(0.3), network=TINY), OBSERVED_ENV), ["a", "b", "a"]),
    "history": (lambda: untrained(rp.TQL(rp.CVaR(0.3), network=TINY), MAZE_ENV), ["a", "b", "a", "b"]),
    "numbers from 3, actions from 5": (lambda: untrained(rp.IQN(network=TINY), NUMBERS), [3, 6, 4]),
    "boxes": (lambda: untrained(rp.IQTD3(network=TINY), BOXES), list(RNG.uniform(-1, 2, (3, 2)).astype(np.float32))),
}


BRIEFLY = ("features, rewards", "history")
"""The tables of a history have the names of states and actions, too."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in BRIEFLY else pytest.mark.long) for name in POLICIES],
)
def pair(request, tmp_path_factory):
    """A policy, what was exported of it, the file, and observations."""
    make, observations = POLICIES[request.param]
    policy = make()
    path = policy.export(tmp_path_factory.mktemp("export") / "policy.zip", platforms=("cpu",))
    return policy, rp.load_policy(path), path, observations


def require_equal(action: Any, own: Any) -> None:
    """Refuse an action that is not the policy's own; it may be a name."""
    assert action == own if np.ndim(own) == 0 else np.allclose(action, own, rtol=1e-5, atol=1e-6)


def test_an_exported_policy_acts_like_the_policy(pair):
    policy, exported, _, observations = pair
    memory = own_memory = None
    for time, observation in enumerate(observations):
        own, own_memory = policy(observation, own_memory, float(time))
        action, memory = exported(observation, memory, float(time))
        require_equal(action, own)


def test_many_environments_at_once_act_like_one_after_another(pair):
    policy, exported, _, observations = pair
    names = exported.description["states"]
    numbers = np.array([names.index(o) for o in observations] if names else observations)
    actions, memories = exported.act_batch(numbers)
    rewards, starts = np.arange(len(numbers), dtype=float), np.arange(len(numbers)) == 1
    later, _ = exported.act_batch(numbers, memories, rewards, starts=starts)
    for i, observation in enumerate(observations):
        first, memory = policy(observation)
        second, _ = policy(observation) if starts[i] else policy(observation, memory, rewards[i])
        for batch, own in ((actions[i], first), (later[i], second)):
            batch = exported.description["actions"][batch] if names else batch
            require_equal(batch, own)


def test_act_batch_of_the_policy_equals_that_of_the_export(pair):
    policy, exported, _, observations = pair
    names = exported.description["states"]
    numbers = np.array([names.index(o) for o in observations] if names else observations)
    seen = policy.tables[0][numbers] if names else numbers
    rewards = np.ones(len(numbers))
    ours, theirs = policy.act_batch(seen), exported.act_batch(numbers)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    again = policy.act_batch(seen, ours[1], rewards)[0]
    np.testing.assert_allclose(again, exported.act_batch(numbers, theirs[1], rewards)[0], rtol=1e-6)


def test_a_file_needs_nothing_but_jax(pair):
    policy, _, path, observations = pair
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read("policy.json"))
        step = jax.jit(export.deserialize(bytearray(archive.read("policy.stablehlo"))).call)
    memory = tuple(np.zeros((1, *leaf["shape"]), leaf["dtype"]) for leaf in about["memory"])
    first = about["states"].index(observations[0]) if about["states"] else observations[0]
    observation = np.asarray([first], about["observation"]["dtype"])
    mask, start = np.ones((1, about["num_actions"]), bool), np.ones(1, bool)
    actions, _ = step(memory, observation, np.zeros(1, np.float32), mask, start, np.zeros(1, np.uint32))
    own, _ = policy(observations[0])
    found = about["actions"][int(actions[0])] if about["actions"] else actions[0]
    require_equal(found, own)


def test_an_export_is_for_devices_that_exist(tmp_path):
    policy = untrained(rp.IQN(network=TINY), MAZE_ENV)
    with pytest.raises(rp.RiskpathError, match="platforms must be some of cpu, cuda, rocm, tpu; got cpus"):
        policy.export(tmp_path / "policy.zip", platforms=["cpus"])
    assert not list(tmp_path.iterdir())
    with zipfile.ZipFile(policy.export(tmp_path / "both.zip")) as archive:
        assert json.loads(archive.read("policy.json"))["platforms"] == ["cpu", "cuda"]
        assert export.deserialize(bytearray(archive.read("policy.stablehlo"))).platforms == ("cpu", "cuda")
    path = policy.export(tmp_path / "policy.zip", platforms=["tpu"])
    with pytest.raises(rp.RiskpathError, match="was exported for tpu; JAX runs on cpu here"):
        rp.load_policy(path)


def test_an_export_for_cpus_runs_where_jax_has_another_default(pair, monkeypatch):
    policy, _, path, observations = pair  # exported for CPUs
    monkeypatch.setattr(export, "default_export_platform", lambda: "cuda")
    exported = rp.load_policy(path)
    action, memory = exported(observations[0])
    require_equal(action, policy(observations[0])[0])
    assert {device.platform for part in memory for device in part.devices()} == {"cpu"}


PARTS = {
    "gear": spaces.Discrete(3, start=1),
    "rest": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, ())]),
}
SEVERAL = gymnasium_like(spaces.Dict(PARTS), spaces.MultiDiscrete([3, 2], start=[1, 5]))


def test_elements_of_spaces_need_no_gymnasium(tmp_path, monkeypatch):
    policy = untrained(rp.IQN(network=TINY), SEVERAL)
    space = SEVERAL.translation.observation_space
    elements = [space.seed(seed) and space.sample() for seed in range(6)]
    expected = [policy(element)[0] for element in elements]
    path = policy.export(tmp_path / "policy.zip", platforms=("cpu",))
    batch = concatenate(space, elements, create_empty_array(space, 6))
    for name in [name for name in sys.modules if name.split(".")[0] == "gymnasium"]:
        monkeypatch.setitem(sys.modules, name, None)
    exported = rp.load_policy(path)
    assert exported.description["action_space"]["space"] == "MultiDiscrete"
    np.testing.assert_array_equal([exported(element)[0] for element in elements], expected)
    np.testing.assert_array_equal(exported.act_batch(batch)[0], expected)
    as_json = json.loads(json.dumps(elements[0], default=lambda number: number.tolist()))
    np.testing.assert_array_equal(exported(as_json)[0], expected[0])
    with pytest.raises(rp.RiskpathError, match=r"an observation must have the parts gear, rest, got \{\}$"):
        exported({})
    assert len({tuple(action) for action in expected}) > 1
    server = rp.PolicyServer(exported, port=0)
    schema = _observation_schema(exported.description)
    assert schema["properties"]["gear"] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert server.policies["policy"] is exported


def test_many_threads_may_call_a_policy():
    exported = untrained(rp.IQTD3(network=TINY), CAR).compiled()
    observations = RNG.normal(size=(40, *CAR.spec.observation_shape)).astype(np.float32)
    expected, found = [exported(one)[0] for one in observations], {}

    def work(first: int) -> None:
        for i in range(first, 40, 4):
            found[i] = exported(observations[i])[0]

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    _ = [thread.start() for thread in threads], [thread.join() for thread in threads]
    np.testing.assert_array_equal([found[i] for i in range(40)], expected)


@pytest.mark.long  # tests/evaluation/test_table_policy.py draws from a randomised one
def test_a_mixture_draws_a_member_for_each_episode():
    policy = untrained(rp.Adaptive("wang:0.75", network=TINY), MAZE_ENV)
    assert isinstance(policy.agent, rp.Adaptive)
    weights = np.full(policy.agent.population()[0], 0.2, np.float32)
    policy = type(policy)(policy.agent, policy.agent.with_weights(policy.state, jax.numpy.asarray(weights)), MAZE_ENV)
    exported = policy.compiled()
    assert exported.description["mixed"]
    for batch in (policy, exported):
        _, memories = batch.act_batch(np.zeros(16, np.int32))
        assert any(len(np.unique(part, axis=0)) > 1 for part in memories)


@functools.cache
def mean_agent() -> Any:
    return untrained(rp.IQN(network=TINY), MAZE_ENV)


@functools.cache
def rewarded() -> Any:
    return untrained(rp.Adaptive(rp.CVaR(0.3), network=TINY), OBSERVED_ENV).compiled()


def forged(path: Path) -> Path:
    """Write a policy whose program calls Python, by a number that JAX does not check."""
    target = "xla_ffi_python_cpu_callback"
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((), np.float32))
    checks = [export.DisabledSafetyCheck.custom_call(target)]
    program = export.export(jax.jit(lambda x: call(x, index=np.uint64(1))), disabled_checks=checks)(np.float32(0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("policy.json", json.dumps({"format": "riskpath policy", "version": 1}))
        archive.writestr("policy.stablehlo", program.serialize())
    return path


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda path: rp.load_policy(path / "nothing.zip"), r"nothing.zip does not exist$"),
        (lambda path: rp.load_policy(path / "text.zip"), r"text.zip is not an exported policy$"),
        (lambda path: rp.load_policy(path / "other.zip"), r"other.zip has another format than riskpath policy 1$"),
        (lambda path: rp.load_policy(path / "damaged.zip"), r"damaged.zip is damaged, or of a version of JAX"),
        (
            lambda path: rp.load_policy(forged(path / "bad.zip")),
            r"bad.zip calls xla_ffi_python_cpu_callback",
        ),
        (lambda path: mean_agent().export(path / "text.zip"), r"text.zip exists and is not an exported policy"),
        (lambda path: mean_agent().compiled()("c"), r"the problem has no state 'c'$"),
        (lambda path: mean_agent().act_batch(0), r"act_batch takes observations of several environments"),
        (lambda path: rewarded().act_batch(np.zeros(2), rewarded().act_batch(np.zeros(2))[1]), r"Adaptive acts on the"),
        (lambda path: rewarded().act_batch(np.zeros(2), rewards=np.zeros(3)), r"rewards have shape \(3,\), but there"),
        (lambda path: rewarded().act_batch(np.full(2, 9)), r"states have numbers from 0 to 2, got \[9, 9\]$"),
        (lambda path: rewarded()("a", memory=()), r"memory must be None or what this policy returned for 1"),
        (lambda path: rewarded()("a", reward=np.nan), r"a reward must be a finite number, got nan$"),
    ],
)
def test_a_wrong_call_raises_one_line(call, line, tmp_path):
    (tmp_path / "text.zip").write_text("mine")
    about = {"format": "riskpath policy", "version": 1, "memory": []}
    for name, description in (("other", about | {"version": 9}), ("damaged", about)):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("policy.json", json.dumps(description))
            archive.writestr("policy.stablehlo", b"no program")
    with pytest.raises(rp.RiskpathError, match=line) as error:
        call(tmp_path)
    assert "\n" not in str(error.value)
    assert (tmp_path / "text.zip").read_text() == "mine"
