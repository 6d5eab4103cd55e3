"""Compare policies as ONNX models with the same policies as StableHLO programs: actions, latency and size.

    make test-onnx
    python -m venv bare && bare/bin/pip install numpy onnxruntime       # an environment without JAX
    .venv-onnx/bin/python benchmarks/speed/onnx_models.py --python bare/bin/python

Every agent has a network of its default size with random, large weights, so that its actions differ, and acts in
`rp.MeanReversionTrading`; C51, whose random weights nearly always choose one action, is trained. Its StableHLO program
plays 1,000 whole episodes (10,000 steps) and answers 10,000 random observations. The ONNX model is given the same
observations and rewards, with its own memory, by onnxruntime in another Python that cannot import JAX; every action is
compared. Then the processor time of single actions is measured, on one thread, in that process and in this one.
AdaptiveContinuous takes the best of several candidates, which may be worth the same up to rounding: where the formats
differ, the utilities of the candidates are compared. Results go to benchmarks/results/onnx.json, beside those of other
agents.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import riskpath as rp
from riskpath.agents.adaptive.adaptive_agent import features
from riskpath.agents.adaptive.continuous_actions import around, mean_law
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.policy_program import first_memory
from riskpath.files import write_json

EPISODES, STEPS, RANDOM = 1_000, 10, 10_000
BLOCKS, CALLS = 40, 100
"""Calls are timed in blocks; the fastest one counts, because other programs slow calls down."""
CVAR = "cvar:0.25"
AGENTS: dict[str, Any] = {
    "IQN": lambda: rp.IQN(CVAR),
    "QRDQN": lambda: rp.QRDQN(CVAR),
    "C51": lambda: rp.C51(CVAR),
    "CVaRDRL": lambda: rp.CVaRDRL(CVAR),
    "QRSRM": lambda: rp.QRSRM(CVAR),
    "Adaptive": lambda: rp.Adaptive(CVAR),
    "AdaptivePPO": lambda: rp.AdaptivePPO(CVAR),
    "PPO": lambda: rp.PPO(),
    "TQL (GRU)": lambda: rp.TQL(CVAR),
    "TQL (LSTM)": lambda: rp.TQL(CVAR, network=rp.Network(history="lstm")),
    "TQL (Transformer)": lambda: rp.TQL(CVAR, network=rp.Network(history="transformer")),
    "PPO, continuous": lambda: rp.PPO(),
    "AdaptivePPO, continuous": lambda: rp.AdaptivePPO(CVAR),
    "DSAC": lambda: rp.DSAC(CVAR),
    "IQTD3": lambda: rp.IQTD3(CVAR),
    "AdaptiveContinuous": lambda: rp.AdaptiveContinuous(CVAR),
    "TQLContinuous (GRU)": lambda: rp.TQLContinuous(CVAR),
    "CVaRPolicyGradient": lambda: rp.CVaRPolicyGradient(CVAR),
    "ReturnCapping": lambda: rp.ReturnCapping(CVAR),
    "WCPG": lambda: rp.WCPG(CVAR),
}
CONTINUOUS = ("DSAC", "IQTD3", "AdaptiveContinuous", "TQLContinuous (GRU)")
TRAINED = {"C51": 5_000}
"""Steps of the agents that are trained."""
CLOSE = 1e-4
"""Continuous actions, in [−1, 1], that differ by less are equal."""

ELSEWHERE = """
import json, sys, time
sys.modules["jax"] = sys.modules["riskpath"] = None
import numpy as np, onnxruntime
model, asked, answers = sys.argv[1:4]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options)
about = json.loads(session.get_modelmeta().custom_metadata_map["riskpath"])
names = [f"memory_{i}" for i in range(len(about["memory"]))]
fresh = {name: np.zeros(part["shape"], part["dtype"]) for name, part in zip(names, about["memory"])}
mask = np.ones(about["num_actions"], bool)
def act(observation, reward, start, memory):
    inputs = {**memory, "observation": observation, "reward": np.array(reward, np.float32), "mask": mask}
    action, *rest = session.run(None, {**inputs, "start": np.array(start)})
    return action, dict(zip(names, rest))
given, found = np.load(asked), []
for observations, rewards in zip(given["observations"], given["rewards"]):
    memory = fresh
    for step, observation in enumerate(observations):
        action, memory = act(observation, rewards[step], step == 0, memory)
        found.append(action)
alone = [act(one, 0.0, True, fresh)[0] for one in given["random"]]
_, memory = act(given["random"][0], 0.0, True, fresh)
seconds = []
for _ in range(int(sys.argv[4])):
    began, calls = time.process_time(), int(sys.argv[5])
    for number in range(calls):
        act(given["random"][number], 0.5, False, memory)
    seconds.append((time.process_time() - began) / calls)
np.savez(answers, found=found, alone=alone, seconds=min(seconds))
"""


def policy_of(name: str) -> LearnedPolicy:
    """Return a policy with large random weights, or a trained one."""
    agent, env = AGENTS[name](), rp.MeanReversionTrading(continuous=name in CONTINUOUS or "continuous" in name)
    if name in TRAINED:
        return rp.train(agent, env, steps=TRAINED[name]).policy()
    state = agent.init(env.spec, key=jax.random.key(0))
    large = jax.tree.map(lambda x: 4.0 * x if eqx.is_inexact_array(x) else x, state.params)
    return LearnedPolicy(agent, eqx.tree_at(lambda one: one.params, state, large), env)


def compare(name: str, folder: Path, python: str, episodes: int, count: int) -> dict[str, Any]:
    """Return how often the actions of the two formats are equal, and how long they take."""
    policy, rng = policy_of(name), np.random.default_rng(0)
    began = time.process_time()
    onnx = policy.export(folder / "policy.onnx")
    conversion = time.process_time() - began
    archive = policy.export(folder / "policy.zip", platforms=("cpu",))
    exported, env = rp.load_policy(archive), policy.environment
    observations, rewards, actions, *memories = play(exported, env, episodes)
    random = rng.normal(size=(count, *env.spec.observation_shape)).astype(np.float32)
    alone, afterwards = exported.act_batch(random)
    np.savez(folder / "asked.npz", observations=observations, rewards=rewards, random=random)
    files = [str(folder / one) for one in ("policy.onnx", "asked.npz", "answers.npz")]
    subprocess.run([python, "-c", ELSEWHERE, *files, str(BLOCKS), str(CALLS)], check=True)
    answers = np.load(files[2])
    flat = lambda array: array.reshape(-1, *array.shape[2:])
    pairs = {
        "episodes": (flat(actions), answers["found"], flat(observations), [flat(leaf) for leaf in memories]),
        "random": (alone, answers["alone"], random, afterwards),
    }
    row: dict[str, Any] = {}
    for kind, (ours, theirs, seen, after) in pairs.items():
        off = np.abs(ours - theirs).reshape(len(ours), -1).max(axis=1)
        row |= {f"{kind} compared": len(ours), f"{kind} equal": int(np.sum(off < CLOSE))}
        row |= {f"{kind} distinct": len(np.unique(ours)), f"{kind} largest difference": float(off.max())}
        if name == "AdaptiveContinuous":
            differ = off >= CLOSE
            leaves = [leaf[differ] for leaf in after]
            row |= {f"{kind} {what}": one for what, one in ties(policy, leaves, seen[differ], theirs[differ]).items()}
    _, memory = exported(random[0])
    exported(random[0], memory, 0.5)  # compiles
    seconds = []
    for _ in range(BLOCKS):
        before = time.process_time()
        for number in range(CALLS):
            exported(random[number], memory, 0.5)
        seconds.append((time.process_time() - before) / CALLS)
    return {
        **row,
        "ONNX µs": round(1e6 * float(answers["seconds"]), 1),
        "StableHLO µs": round(1e6 * min(seconds), 1),
        "ONNX bytes": onnx.stat().st_size,
        "StableHLO bytes": archive.stat().st_size,
        "conversion seconds of CPU": round(conversion, 1),
    }


def ties(policy: LearnedPolicy, leaves: Any, observations: np.ndarray, actions: np.ndarray) -> dict[str, float]:
    """Return how much less utility actions have than the best candidates, and how much candidates differ.

    The memories are those after the step. All numbers are shares of the largest utility of a candidate.
    """
    agent, state, spec = policy.agent, policy.state, policy.environment.spec
    assert isinstance(agent, rp.AdaptiveContinuous)

    def candidates(leaves: Any, observation: Any) -> Any:
        memory = jax.tree.unflatten(jax.tree.structure(first_memory(state, spec)), leaves)
        step = eqx.tree_at(lambda s: s.time, memory.time_step(observation, 0.0, spec.every_action()), memory.time - 1)
        x, (actor, critic) = (
            agent.encode(state, memory.agent.context, step.time),
            (state.params.actor, state.params.critic),
        )
        seen = [features(one.inputs, state, memory.agent, step) for one in critic]
        tried = around(jnp.tanh(actor(features(actor.inputs, state, memory.agent, step), x)))
        laws = jax.vmap(lambda action: mean_law(critic, seen, jnp.concatenate([x, action])))(tried)
        return tried, agent.expected_utility(state, memory.agent.context, laws.T)

    tried, utility = (np.asarray(one) for one in jax.vmap(candidates)(leaves, observations))
    taken = np.abs(tried - actions[:, None]).max(axis=2).argmin(axis=1)[:, None]
    best, size = utility.max(axis=1), np.abs(utility).max(axis=1)
    lost = (best - np.take_along_axis(utility, taken, axis=1)[:, 0]) / size
    spread = (best - utility.min(axis=1)) / size
    return {
        "largest loss": float(lost.max(initial=0.0)),
        "median spread": float(np.median(spread)) if len(spread) else 0.0,
    }


def play(policy: rp.ExportedPolicy, env: Any, episodes: int) -> tuple[np.ndarray, ...]:
    """Return observations, last rewards, actions and memories of whole episodes: [episodes, steps, …]."""
    keys = jax.random.split(jax.random.key(1), episodes)
    observation, state = jax.vmap(env.reset)(keys)
    step, memories, reward = jax.jit(jax.vmap(env.step)), None, np.zeros(episodes, np.float32)
    rows = []
    for time_step in range(STEPS):
        action, memories = policy.act_batch(np.asarray(observation), memories, reward)
        rows.append((np.asarray(observation), np.asarray(reward), action, *(np.asarray(leaf) for leaf in memories)))
        now = jax.vmap(lambda key, t=time_step: jax.random.fold_in(key, t))(keys)
        observation, state, reward, *_ = step(now, state, action)
    return tuple(np.stack(column, axis=1) for column in zip(*rows, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python with numpy and onnxruntime")
    parser.add_argument("--agents", nargs="+", choices=list(AGENTS), default=list(AGENTS))
    parser.add_argument("--latency", action="store_true", help="measure latencies alone")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "onnx.json")
    options = parser.parse_args()
    versions = {"riskpath": rp.__version__, "jax": jax.__version__, "python": platform.python_version()}
    record: dict[str, Any] = {"command": "python benchmarks/speed/onnx_models.py", "machine": platform.machine()}
    earlier = json.loads(options.out.read_text()) if options.out.exists() else {}
    before = earlier.get("agents", {})
    record = earlier | record | {"versions": versions, "agents": before}
    for name in options.agents:
        with tempfile.TemporaryDirectory() as folder:
            try:
                sizes = (1, CALLS) if options.latency else (EPISODES, RANDOM)
                row = compare(name, Path(folder), options.python, *sizes)
                kept = {key: one for key, one in row.items() if "µs" in key} if options.latency else row
                record["agents"][name] = {**before.get(name, {}), **kept}
            except rp.RiskpathError as error:
                record["agents"][name] = {"refused": str(error)}
        print(name, json.dumps(record["agents"][name], ensure_ascii=False), flush=True)
        write_json(options.out, record)


if __name__ == "__main__":
    main()
