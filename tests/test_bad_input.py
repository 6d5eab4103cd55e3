"""What users are likely to get wrong: each mistake is one line that names the value and what is accepted."""

from collections.abc import Callable
from typing import Any

import gymnasium
import jaxtyping
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import riskpath as rp
from tests.training.test_host_loop import LIGHT, NUMBERED, VECTORS, Echo

IQN = rp.IQN(**NUMBERED)


@pytest.fixture(scope="module")
def run() -> rp.Run:
    jaxtyping.config.update("jaxtyping_disable", True)  # the fixture `unchecked` is for one test only
    trained = rp.train(IQN, "ThreeState", steps=40)  # warm-up only: nothing is learned
    jaxtyping.config.update("jaxtyping_disable", False)
    return trained


def train(agent: Any = IQN, env: Any = "ThreeState", **options: Any) -> Callable[[rp.Run], Any]:
    return lambda run: rp.train(agent, env, **{"steps": 50, **options})


def odd(**methods: Any) -> Any:
    """An environment with some methods of its own."""
    return type("Odd", (Echo,), methods)


def starts_with(obs: Any, info: Any = None) -> Any:
    return lambda self, *, seed=None, options=None: (obs, info or {})


def steps_with(*told: Any) -> Any:
    return lambda self, action: told


ZEROS = np.zeros(3, np.float32)
ROW = SyncVectorEnv([Echo], autoreset_mode=AutoresetMode.SAME_STEP)

WRONG: dict[str, tuple[Callable[[rp.Run], Any], str]] = {
    # What is trained.
    "class of agent": (train(rp.IQN), r"give an agent, not its class: IQN\(…\)"),
    "name of agent": (train("iqn"), "cannot train a str; give an agent such as rp.Adaptive"),
    "no agent": (train(None), "cannot train a NoneType"),
    "no agents": (train([]), "give at least one agent"),
    "mean beside CVaR": (
        train([rp.IQN("mean", **NUMBERED), rp.IQN("cvar:0.1", **NUMBERED)]),
        r"float hyperparameters only: write CVaR\(1.0\) for Mean\(\) to train it beside other levels",
    ),
    "measures of different kinds": (
        train([rp.IQN("cvar:0.1", **NUMBERED), rp.IQN("wang:-0.5", **NUMBERED)]),
        "their measures are of different kinds; wrap each one in riskpath.risk.Tabulated",
    ),
    "unknown episode limit": (
        train(rp.TQL(network=rp.Network(hidden=(8,))), Echo),
        "the episode limit of this environment is unknown: .* or set max_episode_steps",
    ),
    "agents and others": (train([IQN, "iqn"]), "cannot train a str"),
    # Where.
    "no environment": (lambda run: rp.train(IQN, steps=50), "cannot train on a NoneType; give a name"),
    "class of environment": (train(env=rp.RiskyGrid), r"give an environment, not its class: RiskyGrid\(…\)"),
    "misspelt name": (train(env="RiskGrid"), r"unknown environment 'RiskGrid' \(did you mean RiskyGrid\?\)"),
    "id without version": (train(env="CartPole"), "or give a Gymnasium id, for example CartPole-v1"),
    "misspelt id": (train(env="CartPol-v1"), "unknown environment 'CartPol-v1': .*Did you mean: `CartPole`"),
    "unknown module": (train(env="nowhere:CartPole-v1"), "cannot make the environment: .*No module named 'nowhere'"),
    "too few environments": (train([IQN] * 2, ["ThreeState"]), "got 2 agents and 1 environments; they must match"),
    "no environments": (train(env=[]), "got 1 agents and 0 environments"),
    "several rows": (train([IQN] * 2, [ROW, ROW]), "give one vector environment for all settings"),
    "vectors in a finite problem": (train(rp.IQTD3(**VECTORS)), "IQTD3 needs continuous actions, but this"),
    "numbers where vectors belong": (
        train(env="Pendulum-v1"),
        "IQN needs discrete actions, but this environment has continuous actions",
    ),
    "an environment for a run": (lambda run: rp.train(run, "ThreeState", steps=50), "give no environment"),
    # For how long, and what is done meanwhile.
    "no steps": (train(steps=None), "give steps=…, the environment steps for each lane"),
    "float steps": (train(steps=1e5), r"steps must be a whole number, got 100000\.0"),
    "text steps": (train(steps="50"), "steps must be a whole number, got '50'"),
    "envs": (train(num_envs=0), "num_envs must be at least 1, got 0"),
    "no seeds": (train(seeds=None), "seeds must be a whole number, got None"),
    "float seeds": (train(seeds=2.5), r"seeds must be a whole number, got 2\.5"),
    "float seed": (train(seed=0.5), r"seed must be a whole number, got 0\.5"),
    "evaluate_every 0": (train(evaluate_every=0), "evaluate_every must be at least 1, got 0"),
    "evaluate_every -5": (train(evaluate_every=-5), "evaluate_every must be at least 1, got -5"),
    "progress": (train(progress="yes"), "progress must be True, False or a function, got 'yes'"),
    "one callback": (train(callbacks=print), "callbacks must be a list of functions, got a builtin"),
    "callback": (train(callbacks=[3]), "a callback must be a function, got 3"),
    "watch": (train(evaluate_every=10, evaluator="values"), "evaluator must be a function, got 'values'"),
    "evaluator without evaluations": (train(evaluator=lambda run: {}), "give evaluate_every=… as well"),
    "what watch raises": (
        train(evaluate_every=10, evaluator=lambda run: run.nothing),
        "evaluator failed: AttributeError",
    ),
    "what a callback raises": (train(callbacks=[lambda run: None]), "a callback failed: TypeError: .* 1 positional"),
    "checkpoint nowhere": (train(checkpoint="/proc/nowhere"), "cannot save to /proc/nowhere: No such file"),
    "what watch returns": (
        train(evaluate_every=10, evaluator=lambda run: 1.0),
        "evaluator must return a dictionary, got a fl",
    ),
    "checkpoint": (train(checkpoint=True), "checkpoint must be a folder or a Checkpointer, got True"),
    "checkpoint is a file": (train(checkpoint=__file__), "it is a file, and a run is saved as a folder"),
    "seeds of a run": (lambda run: rp.train(run, steps=50, seeds=3), "with its own seeds, 1, not 3"),
    "envs of a run": (lambda run: rp.train(run, steps=50, num_envs=2), "with its own num_envs, 1, not 2"),
    # What is asked of a run.
    "runs compared": (lambda run: rp.compare(run, run), r"compare takes two evaluations, run\.evaluate\(\); got a Run"),  # pyright: ignore[reportArgumentType]
    "predictor of a run": (lambda run: rp.Predictor(run), r"a Predictor takes run\.policy\(\), got Run"),
    "measure of an evaluation": (lambda run: run.evaluate(5).risk("cvar 0.1"), "unknown risk measure 'cvar 0.1'"),
    "episodes": (lambda run: run.evaluate(-1), "episodes must be at least 1, got -1"),
    "float episodes": (lambda run: run.evaluate(1e3), r"episodes must be a whole number, got 1000\.0"),  # pyright: ignore[reportArgumentType]
    "limit": (lambda run: run.evaluate(5, max_episode_steps=0), "max_episode_steps must be at least 1, got 0"),
    "other shape": (
        lambda run: run.evaluate(5, env="CartPole-v1"),
        r"another shape of obs.*: \(4,\), not \(\)",
    ),
    "other actions": (lambda run: run.evaluate(5, env=lambda: Echo(spaces.Discrete(3))), "another number of actions"),
    "other kind": (lambda run: run.evaluate(5, env=3), "cannot train on a int"),
    "seed of policy": (lambda run: run.policy(seed=99), "no seed 99 of 1, setting 0 of 1"),
    "float seed of policy": (lambda run: run.policy(0.0), r"seed must be a whole number, got 0\.0"),  # pyright: ignore[reportArgumentType]
    "setting of law": (lambda run: run.law(setting=-1), "no seed 0 of 1, setting -1 of 1"),
    "discount of law": (lambda run: run.law(discount=1.5), r"discount must be in \(0, 1\], got 1\.5"),
    "nowhere": (lambda run: rp.load("nowhere"), "there is no saved run at nowhere"),
    # Environments of their own.
    "old step": (train(env=odd(step=steps_with(ZEROS, 1.0, False, {}))), "in step: ValueError: .*expected 5, got 4"),
    "old reset": (train(env=odd(reset=lambda self: ZEROS)), "failed in reset: TypeError: .*'seed'"),
    "reset without info": (
        train(env=odd(reset=lambda self, *, seed=None, options=None: ZEROS)),
        "reset must return an observation and a dictionary, got a ndarray",
    ),
    "reset fails": (train(env=odd(reset=lambda self, **_: 1 / 0)), "failed in reset: ZeroDivisionError"),
    "no spaces": (train(env=type("Bare", (gymnasium.Env,), {})), "cannot make the environment: AttributeError"),
    "observation": (
        train(env=odd(reset=starts_with(np.ones(4)))),
        r"has shape \(4,\); the observation space says",
    ),
    "later observation": (
        train(env=odd(step=steps_with(np.ones(4), 1.0, False, False, {}))),
        "the environment failed in step: ValueError",
    ),
    "NaN observation": (
        train(env=odd(step=steps_with(ZEROS * np.nan, 1.0, False, False, {}))),
        "an observation of the environment is not a finite number",
    ),
    "NaN last observation": (
        train(env=odd(step=steps_with(ZEROS * np.nan, 1.0, True, False, {}))),
        "an observation of the environment is not a finite number",
    ),
    "unknown state": (
        train(env=lambda: odd(reset=starts_with(7))(spaces.Discrete(3))),
        "an observation is outside of its space, which has 3 states",
    ),
    "NaN reward": (
        train(env=odd(step=steps_with(ZEROS, np.nan, False, False, {}))),
        "a reward of the environment is not a finite number: nan",
    ),
    "mask": (
        train(env=odd(reset=starts_with(ZEROS, {"action_mask": np.ones(5)}))),
        r"an action mask has shape \(5,\); there are 3 actions",
    ),
    # What is asked of a policy.
    "state": (lambda run: run.policy()("s9"), "the problem has no state 's9'; it has 's0'"),
    "action": (
        lambda run: run.policy().override_action(run.policy()("s0")[1], "fly"),
        "the problem has no action 'fly'; it has",
    ),
    "no folder": (lambda run: rp.load(3), "named by a text or a Path, got 3"),  # pyright: ignore[reportArgumentType]
    "no file": (lambda run: rp.load_policy(None), "named by a text or a Path, got None"),  # pyright: ignore[reportArgumentType]
    # Hyperparameters.
    "measure that is a number": (
        lambda run: rp.IQN(0.25),  # pyright: ignore[reportArgumentType]
        "expected a risk measure such as .* or a text such as 'cvar:0.25', got 0.25",
    ),
    "misspelt measure": (lambda run: rp.CVaRDRL("cvr:0.25"), "unknown risk measure 'cvr:0.25'"),
    "misplaced hyperparameter": (
        lambda run: rp.IQN(learning_rate=0.1),  # pyright: ignore[reportCallIssue]
        r"IQN has no field 'learning_rate'; give training=rp.Training\(learning_rate=…\)",
    ),
    "misplaced hyperparameter of an actor": (
        lambda run: rp.TQLContinuous(policy_delay=1),  # pyright: ignore[reportCallIssue]
        r"no field 'policy_delay'; give actor=rp.ActorTraining\(policy_delay=…\)",
    ),
    "misspelt field": (
        lambda run: rp.Training(learning_rat=0.1),  # pyright: ignore[reportCallIssue]
        r"Training has no field 'learning_rat' \(did you mean learning_rate\?\)",
    ),
    "discount 0": (lambda run: rp.IQN(discount=0.0), "discount must be more than 0, got 0"),
    "discount 1.1": (lambda run: rp.TQL(discount=1.1), "discount must be from 0 to 1, got 1.1"),
    "discount in words": (lambda run: rp.TQL(discount="0.9"), "discount must be a number, got '0.9'"),  # pyright: ignore[reportArgumentType]
    "training of another kind": (
        lambda run: rp.IQN(training=rp.RolloutTraining()),  # pyright: ignore[reportArgumentType]
        "training of IQN must be a Training, got a RolloutTraining",
    ),
    "network of another kind": (lambda run: rp.IQN(network=64), "network of IQN must be a Network, got a int"),  # pyright: ignore[reportArgumentType]
    "width": (lambda run: rp.Network(hidden=64), r"hidden must be a tuple of whole numbers, for example \(64,\)"),  # pyright: ignore[reportArgumentType]
    "no width": (lambda run: rp.Network(hidden=()), "a network needs at least one hidden layer"),
    "window": (lambda run: rp.Network(window=0), "window must be at least 1, got 0"),
    "head": (lambda run: rp.Network(head="shallow"), "head must be factored or deep or table, got 'shallow'"),  # pyright: ignore[reportArgumentType]
    "batch": (lambda run: rp.Training(batch_size=0), "batch_size must be at least 1, got 0"),
    "no batch": (lambda run: rp.Training(batch_size=None), "batch_size must be a whole number, got None"),  # pyright: ignore[reportArgumentType]
    "no memory": (lambda run: rp.Network(history_size=None), "history_size must be a whole number, got None"),  # pyright: ignore[reportArgumentType]
    "no delay": (
        lambda run: rp.ActorTraining(policy_delay=None),  # pyright: ignore[reportArgumentType]
        "policy_delay must be a whole number, got None",
    ),
    "no forks": (lambda run: rp.RiskyGrid(forks=None), "forks must be a whole number, got None"),  # pyright: ignore[reportArgumentType]
    "float batch": (lambda run: rp.Training(batch_size=32.0), r"batch_size must be a whole number, got 32\.0"),  # pyright: ignore[reportArgumentType]
    "step size": (lambda run: rp.Training(learning_rate=-1e-3), "learning_rate must be at least 0, got -0.001"),
    "epsilon": (lambda run: rp.EpsilonGreedy(initial_eps=1.5), "initial_eps must be from 0 to 1, got 1.5"),
    "share": (lambda run: rp.Training(decay_ends=9_000.0), "decay_ends must be from 0 to 1, got 9000"),
    "kappa": (lambda run: rp.Training(kappa=0.0), "kappa must be more than 0, got 0"),
    "quiet": (lambda run: rp.ActionNoise(episodes=-0.1), "episodes must be from 0 to 1, got -0.1"),
    "delay": (lambda run: rp.ActorTraining(policy_delay=0), "policy_delay must be at least 1, got 0"),
    "critic": (lambda run: rp.TQL(critic="both"), "critic must be joint, trajectory or convolved, got 'both'"),  # pyright: ignore[reportArgumentType]
    # Exact solutions.
    "name to solve": (
        lambda run: rp.solve("RiskyGrid", "cvar:0.1"),
        r"solve needs a FiniteMDP, or an environment with a finite problem or a grid, such as .*; got RiskyGrid",
    ),
    "problem to solve": (
        lambda run: rp.solve(rp.make("RiskyMountainCar"), "mean"),
        r"such as rp\.make\(name\); got RiskyMountainCar",
    ),
    # Measures.
    "a number": (lambda run: rp.parse_risk(0.25), r"expected a risk measure such as CVaR\(0.25\) .*, got 0.25"),  # pyright: ignore[reportArgumentType]
    "level in words": (
        lambda run: rp.parse_risk("cvar 0.25"),
        "unknown risk measure 'cvar 0.25'; use mean, cvar:LEVEL",
    ),
    "level as a call": (lambda run: rp.parse_risk("CVaR(0.25)"), r"unknown risk measure 'CVaR\(0.25\)'"),
    "no level": (lambda run: rp.parse_risk("cvar:"), "cannot read the number '' in risk measure 'cvar:'"),
    "per cent": (lambda run: rp.parse_risk("cvar:25%"), "cannot read the number '25%'"),
    "NaN level": (lambda run: rp.parse_risk("cvar:nan"), r"CVaR level must be in \(0, 1\], got nan"),
    "sum without shares": (lambda run: rp.parse_risk("mean+cvar:0.1"), r"unknown risk measure 'mean\+cvar:0.1'"),
    "shares": (lambda run: rp.parse_risk("0.7*mean+0.7*cvar:0.1"), "sum to 1, got 0.7, 0.7"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_line(mistake, run, unchecked):
    call, message = WRONG[mistake]
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call(run)
    assert "\n" not in str(refused.value)


def test_without_a_finite_problem_returns_are_known_for_one_discount_only(unchecked):
    run = rp.train(LIGHT, Echo, steps=50)
    with pytest.raises(rp.RiskpathError, match=r"discount must be 1 or the agents' own for sampled returns, got 0\.5"):
        run.values(0.5)
    with pytest.raises(rp.RiskpathError, match="the exact return distribution needs a finite problem"):
        run.law()
