"""ONNX models act like the policies they were made of, also where JAX cannot be imported."""

import json
import random
import subprocess
import sys

import jax
import numpy as np
import pytest
from gymnasium import spaces

import riskpath as rp
from riskpath.evaluation.policy_file import write_policy
from riskpath.evaluation.policy_program import TracedPolicy
from riskpath.evaluation.table_policy import trace
from riskpath.mdp.policies import RandomisedPolicy
from tests.evaluation.policies import CAR, MAZE, MAZE_ENV, OBSERVED_ENV, TINY, gymnasium_like, untrained
from tests.evaluation.test_table_policy import play
from tests.test_docs import DOCS, blocks

pytest.importorskip("jax2onnx")
pytest.importorskip("onnxruntime")

AGENTS = {
    "IQN": (lambda: rp.IQN(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "Adaptive": (lambda: rp.Adaptive(rp.CVaR(0.3), network=TINY), OBSERVED_ENV),
    "TQL": (lambda: rp.TQL(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "CVaRDRL": (lambda: rp.CVaRDRL(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "QRSRM": (lambda: rp.QRSRM(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "QRDQN": (lambda: rp.QRDQN(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "C51": (lambda: rp.C51(rp.CVaR(0.3), network=TINY), MAZE_ENV),
    "PPO": (lambda: rp.PPO(network=rp.Network(hidden=(8,))), MAZE_ENV),
    "AdaptivePPO": (lambda: rp.AdaptivePPO(rp.CVaR(0.3), network=rp.Network(hidden=(8,))), OBSERVED_ENV),
    "LSTM": (lambda: rp.TQL(rp.CVaR(0.3), network=rp.Network((8,), history="lstm", history_size=4)), MAZE_ENV),
    "Transformer": (
        lambda: rp.TQL(rp.CVaR(0.3), network=rp.Network((8,), history="transformer", history_size=4)),
        MAZE_ENV,
    ),
    "PPO, continuous": (lambda: rp.PPO(network=rp.Network(hidden=(8,))), CAR),
    "AdaptivePPO, continuous": (lambda: rp.AdaptivePPO(rp.CVaR(0.3), network=rp.Network(hidden=(8,))), CAR),
    "AdaptivePPO, Wang": (lambda: rp.AdaptivePPO("wang:-0.75", network=rp.Network(hidden=(8,))), OBSERVED_ENV),
    "DSAC": (lambda: rp.DSAC(rp.CVaR(0.3), network=TINY), CAR),
    "IQTD3": (lambda: rp.IQTD3(network=TINY), CAR),
    "TQLContinuous": (lambda: rp.TQLContinuous(network=TINY), CAR),
    "CVaRPolicyGradient": (lambda: rp.CVaRPolicyGradient(rp.CVaR(0.3), network=rp.Network(hidden=(8,))), MAZE_ENV),
    "ReturnCapping": (lambda: rp.ReturnCapping(rp.CVaR(0.3), network=rp.Network(hidden=(8,))), CAR),
    "WCPG": (lambda: rp.WCPG(rp.CVaR(0.3), network=rp.Network(hidden=(8,))), CAR),
    "AdaptiveContinuous": (lambda: rp.AdaptiveContinuous(rp.CVaR(0.3), network=TINY), CAR),
}

WITHOUT_JAX = """
import json, sys
sys.modules["jax"] = sys.modules["riskpath"] = None
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["riskpath"])
inputs = {f"memory_{i}": np.zeros(part["shape"], part["dtype"]) for i, part in enumerate(about["memory"])}
inputs |= {"mask": np.ones(about["num_actions"], bool), "start": np.array(True), "reward": np.float32(0)[...]}
actions = []
for state, reward in json.loads(sys.argv[2]):
    inputs |= {"observation": np.array(about["states"].index(state), np.int32), "reward": np.array(reward, np.float32)}
    action, *memory = session.run(None, inputs)
    inputs |= {f"memory_{i}": part for i, part in enumerate(memory)} | {"start": np.array(False)}
    actions.append(about["actions"][int(action)])
print(json.dumps(actions))
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if i > 1 else []) for i, name in enumerate(AGENTS)]
)
@pytest.mark.filterwarnings("ignore")  # of the converter
def test_a_model_acts_like_the_policy(name, tmp_path, unchecked):
    make, env = AGENTS[name]
    policy, rng = untrained(make(), env), np.random.default_rng(0)
    model, exported = rp.load_policy(policy.export(tmp_path / "policy.onnx")), policy.compiled()
    about, ours, theirs = model.description, None, None
    assert about["agent"] == type(policy.agent).__name__
    for _ in range(5):  # the steps of 400 episodes
        shape = about["observation"]["shape"]
        observations = rng.integers(0, 3, 400) if about["states"] else rng.normal(size=(400, *shape))
        rewards = rng.normal(size=400)
        masks = np.array([[1, 1, 1], [0, 1, 1]])[rng.integers(0, 2, 400)] if about["num_actions"] else None
        actions, ours = model.act_batch(observations, ours, rewards, masks)
        expected, theirs = exported.act_batch(observations, theirs, rewards, masks)
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-4)
        if about["num_actions"]:
            assert len(np.unique(actions)) > 1
    if name == "Adaptive":
        memory, expected, episode = None, [], [("a", 0.0), ("b", 1.5), ("a", -2.0), ("b", 0.5)]
        for state, reward in episode:
            action, memory = policy(state, memory, reward)
            expected.append(action)
        command = [sys.executable, "-c", WITHOUT_JAX, str(tmp_path / "policy.onnx"), json.dumps(episode)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert json.loads(done.stdout) == expected, done.stderr


@pytest.mark.filterwarnings("ignore")
def test_the_lines_of_the_guide_run_a_model(tmp_path, monkeypatch, unchecked):
    (lines,) = (block for block in blocks(DOCS / "guides" / "production.md", "py") if "InferenceSession" in block)
    policy, names = untrained(rp.IQN(network=TINY), rp.MeanReversionTrading()), {}
    monkeypatch.chdir(tmp_path)
    policy.export("policy.onnx")
    exec(lines, names)
    assert int(names["action"]) == policy(np.zeros(3, np.float32))[0]


@pytest.mark.filterwarnings("ignore")
def test_a_model_takes_elements_of_spaces_without_gymnasium(tmp_path, monkeypatch, unchecked):
    parts = spaces.Dict({"gear": spaces.Discrete(3, start=1), "place": spaces.Box(-1, 1, (2,))})
    env = gymnasium_like(parts, spaces.MultiDiscrete([3, 2], start=[1, 5]))
    policy = untrained(rp.IQN(network=TINY), env)
    elements = [parts.seed(seed) and parts.sample() for seed in range(20)]
    expected = [policy(element)[0] for element in elements]
    path = policy.export(tmp_path / "policy.onnx")
    for name in [name for name in sys.modules if name.split(".")[0] == "gymnasium"]:
        monkeypatch.setitem(sys.modules, name, None)
    model = rp.load_policy(path)
    np.testing.assert_array_equal([model(element)[0] for element in elements], expected)
    assert len({tuple(action) for action in expected}) > 1


@pytest.mark.filterwarnings("ignore")
def test_exact_policies_are_models_too(tmp_path, unchecked):
    solution = rp.solve(MAZE, "cvar:0.3")
    model = rp.load_policy(rp.export_policy(solution, tmp_path / "policy.onnx"))
    play(MAZE, model, solution.policy, np.random.default_rng(0))


def grid_problem(noise) -> rp.GridProblem:
    return rp.GridProblem(
        axes={"price": np.geomspace(0.2, 5.0, 40)},  # not equally spaced, so that points are searched
        actions=[0.0, 1.0, 2.0],
        steps=4,
        start=(1.0,),
        noise=noise,
        decide=lambda time, state, action: (state, action * (1.0 - state[0]), False),
        move=lambda time, state, noise: ((state[0] * jax.numpy.exp(0.3 * noise),), state[0] * noise),
        return_points=101,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("noise", "policies"),
    [
        (rp.finite_noise([-1.0, 1.0]), "markov"),
        (rp.finite_noise([-1.0, 1.0]), "adaptive"),
        (rp.normal_noise(8), "adaptive"),
    ],
    ids=["markov", "adaptive", "market"],
)
def test_policies_on_a_grid_are_models_too(noise, policies, tmp_path, capfd, unchecked):
    solution = rp.solve(grid_problem(noise), "cvar:0.25", policies)
    path = rp.export_policy(solution, tmp_path / "policy.onnx")
    capfd.readouterr()
    model, archive = rp.load_policy(path), rp.load_policy(rp.export_policy(solution, tmp_path / "policy.zip", ("cpu",)))
    assert capfd.readouterr().err == ""  # no remark of the runtime
    rng, ours, theirs, rewards = np.random.default_rng(0), None, None, np.zeros(200)
    for _ in range(4):
        prices = rng.uniform(0.3, 3.0, (200, 1))
        actions, ours = model.act_batch(prices, ours, rewards)
        expected, theirs = archive.act_batch(prices, theirs, rewards)
        np.testing.assert_array_equal(actions, expected)
        assert len(np.unique(actions)) > 1
        rewards = rng.normal(size=200)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["learned", "exact"])
def test_a_model_draws_one_of_several_policies_by_the_seed(kind, tmp_path, unchecked):
    if kind == "learned":
        agent = rp.Adaptive("wang:0.75", network=TINY)
        policy = untrained(agent, MAZE_ENV)
        weights = np.full(agent.population()[0], 0.2, np.float32)
        mixed = type(policy)(agent, agent.with_weights(policy.state, jax.numpy.asarray(weights)), MAZE_ENV)
    else:
        solution = rp.solve(MAZE, "cvar:0.3", policies="adaptive")
        first, second = rp.MarkovPolicy({"a": "on", "b": "on"}), rp.MarkovPolicy({"a": "out", "b": "back"})
        mixed = type(solution)(**{**vars(solution), "policy": RandomisedPolicy(((0.25, first), (0.75, second)))})
    made = [rp.load_policy(rp.export_policy(mixed, tmp_path / name)) for name in ("policy.onnx", "policy.zip")]
    found = []
    for one in made:
        random.seed(0)
        actions, memories = one.act_batch(np.zeros(300, np.int32))
        later, memories = one.act_batch(np.ones(300, np.int32), memories, np.full(300, 2.0))
        found.append((actions, later, *memories))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert max(len(np.unique(part, axis=0)) for part in found[0]) > 1
    if kind == "exact":
        assert abs(np.mean(found[0][0] == made[0].description["actions"].index("out")) - 0.75) < 0.08


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_written_is_said_in_one_line(tmp_path):
    policy = untrained(rp.IQN(network=TINY), MAZE_ENV)
    traced = trace(policy)

    def step(memory, observation, reward, *rest):
        _, memory = traced.step(memory, observation, reward, *rest)
        return jax.pure_callback(abs, reward, reward), memory

    with pytest.raises(rp.RiskpathError, match=r"this policy cannot be written as ONNX: .*pure_callback"):
        write_policy(TracedPolicy(step, traced.description), tmp_path / "policy.onnx")
    (tmp_path / "mine.onnx").write_text("mine")
    with pytest.raises(rp.RiskpathError, match=r"mine.onnx exists and is not an exported policy"):
        policy.export(tmp_path / "mine.onnx")
    with pytest.raises(rp.RiskpathError, match=r"mine.onnx is not an exported policy"):
        rp.load_policy(tmp_path / "mine.onnx")
    with pytest.raises(rp.RiskpathError, match=r"nothing.onnx does not exist"):
        rp.load_policy(tmp_path / "nothing.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.onnx"]
