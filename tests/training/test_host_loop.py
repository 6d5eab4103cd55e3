"""Environments that the host steps: the same numbers as the fused loop, and everybody's Gymnasium environments."""

import dataclasses
import os
import signal
import threading
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import riskpath as rp
from riskpath.agents.agent import ActorOutput
from riskpath.agents.learning import descend, new_state
from riskpath.envs.finite import as_arrays
from riskpath.envs.gymnasium_vector import gymnasium_source
from riskpath.envs.vector import HostEnvironment, VectorEnvironment, VectorStep
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.training import checkpoint
from riskpath.training import fused_loop as loop
from riskpath.training import host_loop as host
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import Lanes, start
from tests.conftest import compiled_as_users
from tests.envs.problems import EchoEnv
from tests.training.fakes import Counting
from tests.training.sizes import TINY_ADAPTIVE, TINY_IQN

SMALL: dict[str, Any] = {
    "batch_size": 8,
    "num_quantiles": 4,
    "num_target_quantiles": 4,
    "num_action_quantiles": 8,
    "learning_starts": 40,
    "buffer_size": 400,
    "target_update_interval": 10,
}
NET = rp.Network(hidden=(8,), history_size=8, window=2)
NUMBERED = {"network": NET, "training": rp.Training(**SMALL)}
SOFT = {"network": NET, "training": rp.Training(**SMALL, target_update_rate=0.3)}
VECTORS = {"network": NET, "training": rp.Training(**SMALL)}
AGENT = rp.IQN(rp.CVaR(0.5), **NUMBERED)
LIGHT = Counting(training=NUMBERED["training"])
"""Wherever the agent does not matter: its programs are compiled quickly, and environments of one size share them."""
WARMED = {**TINY_IQN, "training": dataclasses.replace(TINY_IQN["training"], learning_starts=40)}
CAR = rp.RiskyMountainCar(0.5, 30)


class Echo(EchoEnv):
    """An environment that may fail at one of its steps."""

    def __init__(self, observation_space=None, action_space=None, length=5, fails_at=None, masked=False):
        super().__init__(observation_space, action_space, length, masked)
        self.fails_at = fails_at

    def step(self, action):
        if self.time + 1 == self.fails_at:
            raise ValueError("the motor\nis broken")
        return super().step(action)


class Still(Echo):
    """Observes the same whatever happens."""

    def __init__(self, obs):
        super().__init__()
        self.obs = np.asarray(obs, np.float32)

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        return self.obs, info

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        return self.obs, reward, terminated, truncated, info


class Compiled(VectorEnvironment):
    """Environments of ours, stepped by the host like anybody's: to check one loop against the other."""

    def __init__(self, env: rp.Environment, count: int):
        self.spec, self.num_envs = env.spec, count
        self._env, self._state = as_arrays(env), None

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        obs, self._state, mask = reset_all(self._env, keys.reshape(-1))
        return np.asarray(obs), np.asarray(mask)

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> VectorStep:
        keys = env_keys.reshape(-1), reset_keys.reshape(-1)
        self._state, outcome = step_all(self._env, self._state, jnp.asarray(action), *keys)
        return VectorStep(*(np.asarray(getattr(outcome, name)) for name in VectorStep._fields))

    def close(self) -> None:
        pass


@eqx.filter_jit
def reset_all(env: rp.Environment, keys: Any) -> Any:
    obs, state = jax.vmap(env.reset)(keys)
    return obs, state, jax.vmap(env.action_mask)(state)


@eqx.filter_jit
def step_all(env: rp.Environment, state: Any, action: Any, env_keys: Any, reset_keys: Any) -> Any:
    return jax.vmap(lambda *asked: loop.step_and_reset(env, *asked)[:2])(state, action, env_keys, reset_keys)


def leaves(lanes: Lanes) -> list[np.ndarray]:
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    parts = (
        lanes.agent_state,
        lanes.store,
        lanes.keys,
        lanes.time_step,
        lanes.memory,
        lanes.return_so_far,
        lanes.recent,
        lanes.steps,
    )
    return [np.asarray(plain(x)) for x in jax.tree.leaves(eqx.filter(parts, eqx.is_array))]


HISTORY = rp.TQL(rp.CVaR(0.5), critic="trajectory", **SOFT)
"""Has a history, soft updates and, below, two environments; `IQTD3` has continuous actions and four of them."""
ADAPTIVE = rp.Adaptive(rp.CVaR(0.5), network=NET, training=rp.Training(**SMALL, target_update_rate=0.3))
"""Has contexts and the record of episodes, too; without a history it looks several steps ahead."""


class Layers(Counting):
    """Learns two layers from the numbers of states: rounded sums as in an agent of the library, in a small program."""

    def init(self, spec, *, key):
        first, second = jax.random.normal(key, (2, spec.num_states, 16)) / 4.0
        return new_state(self, (first, second[: spec.num_actions].T))

    def act(self, state, memory, time_step, *, key, mode):
        key, dice = jax.random.split(key)
        choice = super().act(state, memory, time_step, key=key, mode=mode)
        values = jnp.where(time_step.action_mask, self.predict(state.params, time_step.observation), -jnp.inf)
        explores = mode.warms_up | (jax.random.uniform(dice) < 1.0 - 0.5 * mode.done)
        best = jnp.argmax(values).astype(jnp.int32)
        return ActorOutput(jnp.where(jnp.asarray(mode.explores) & explores, choice.action, best))

    def update(self, state, batch, clock, *, key):
        ahead = jnp.max(self.predict(state.target_params, batch.next_observation), axis=1)
        target = batch.reward / 100.0 + jnp.where(batch.terminated, 0.0, 0.9 * ahead)

        def loss(params):
            values = jnp.take_along_axis(self.predict(params, batch.observation), batch.action[:, None], axis=1)
            return jnp.mean((values[:, 0] - target) ** 2)

        return descend(self, state, loss, clock)

    @staticmethod
    def predict(params, observation):
        return jnp.tanh(params[0][observation]) @ params[1]


def check_both_loops(agent: rp.Agent, env: Any, envs: int) -> None:
    """Train in both loops and compare every number."""
    world = as_environment(env)
    row = Compiled(world, 2 * envs)
    fused = start([agent], [world], 2, envs, 0)
    hosted = start([agent], [HostEnvironment(world.spec)], 2, envs, 0, vector=row)
    with compiled_as_users():
        *_, (fused, *_) = loop.advance(fused, world.spec, 120, 40)
        *_, (hosted, *_) = host.advance(hosted, row, world.spec, 120, 40)
    assert int(hosted.steps) == int(fused.steps) >= 120
    for a, b in zip(leaves(fused), leaves(hosted), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("agent", "env", "envs"),
    [
        (Layers(training=rp.Training(**SMALL, target_update_rate=0.3)), "RiskyGrid", 2),
        # A Gymnasium environment with vectors of actions is trained below.
        *(
            pytest.param(agent, env, envs, marks=pytest.mark.long)
            for agent, env, envs in (
                (rp.IQN(rp.CVaR(0.5), **WARMED), "RiskyGrid", 1),
                (HISTORY, "RiskyGrid", 2),
                (rp.IQTD3(rp.CVaR(0.5), **VECTORS), CAR, 4),
                (rp.Adaptive(rp.CVaR(0.5), **TINY_ADAPTIVE), "RiskyGrid", 1),
                (ADAPTIVE, "RiskyGrid", 2),
            )
        ),
    ],
    ids=["two layers", "IQN", "TQL", "IQTD3", "Adaptive", "Adaptive with a history"],
)
def test_both_loops_give_the_same_bits(agent, env, envs, unchecked):
    check_both_loops(agent, env, envs)


@pytest.mark.parametrize(
    ("agent", "env", "seeds"),
    [
        pytest.param(
            *(LIGHT, lambda: Echo(spaces.Discrete(4, start=1), spaces.Discrete(3, start=5)), 2), marks=pytest.mark.long
        ),
        (LIGHT, lambda: Echo(spaces.Dict({"x": spaces.Box(0.0, 1.0, (3,), np.float32)}), masked=True), 1),
        pytest.param(AGENT, lambda: Echo(masked=True), 2, marks=pytest.mark.long),
        (LIGHT, lambda: Echo(action_space=spaces.Box(-3.0, 1.0, (2,), np.float32)), 2),
        pytest.param(
            *(rp.IQTD3(rp.CVaR(0.5), **VECTORS), lambda: Echo(action_space=spaces.Box(-3.0, 1.0, (2,), np.float32)), 2),
            marks=pytest.mark.long,
        ),
    ],
    ids=["numbers", "dict", "masked", "vectors", "IQTD3"],
)
def test_a_gymnasium_environment_is_trained_evaluated_kept_and_resumed(agent, env, seeds, tmp_path, unchecked):
    run = rp.train(agent, env, steps=80, seeds=seeds, checkpoint=tmp_path / "run")
    found = run.evaluate(episodes=5)
    assert found.returns.shape == (1, seeds, 5)
    assert (found.returns == 5.0).all()
    assert found.finished == 1.0
    np.testing.assert_allclose(found.discounted, sum(0.99**i for i in range(5)), rtol=1e-6)
    one = env()
    obs, info = one.reset(seed=0)
    action, _ = run.policy(seeds - 1)(obs, mask=info.get("action_mask"))
    one.step(action)  # which complains if it is not one of its own
    again = rp.load(tmp_path / "run", env=env)
    assert again.policy(seeds - 1)(obs, mask=info.get("action_mask"))[0] == pytest.approx(action)
    assert rp.train(again, steps=20).steps >= 100


def test_ids_objects_vectors_and_workers(unchecked):
    by_id = rp.train(LIGHT, "CartPole-v1", steps=60, seed=3)
    by_object = rp.train(LIGHT, gymnasium.make("CartPole-v1"), steps=60, seed=3)
    row = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.SAME_STEP)
    by_row = rp.train(LIGHT, row, steps=60, seed=3)
    by_workers = rp.train(LIGHT, "CartPole-v1", steps=60, seed=3, workers=True)
    assert by_workers.vector is not None
    by_workers.vector.close()
    for other in (by_object, by_row, by_workers):
        for a, b in zip(leaves(by_id.lanes), leaves(other.lanes), strict=True):
            np.testing.assert_array_equal(a, b)
    assert by_id.spec.max_episode_steps == 500


def test_a_run_on_an_id_is_loaded_without_being_told(tmp_path, unchecked):
    run = rp.train(LIGHT, "CartPole-v1", steps=60)
    run.save(tmp_path / "run")
    again = rp.load(tmp_path / "run")
    assert (again.evaluate(3, seed=1).returns == run.evaluate(3, seed=1).returns).all()


def test_ctrl_c_returns_what_was_trained(unchecked):
    run = rp.train(LIGHT, lambda: Echo(), steps=60)  # compiled by now
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    rp.train(run, steps=10_000_000)
    assert 60 < run.steps < 10_000_000
    assert run.evaluate(2).returns.shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (np.zeros(5), r"must be one of Box\(.*: ValueError: cannot reshape"),
        ({"a": 1}, "an observation must consist of numbers"),
        ("left", "an observation must consist of numbers"),
    ],
)
def test_a_policy_is_shown_what_it_was_trained_on(state, message, unchecked):
    spec = gymnasium_source(Echo).environment.spec
    agent = rp.IQN(**NUMBERED)
    policy = LearnedPolicy(agent, agent.init(spec, key=jax.random.key(0)), gymnasium_source(Echo).environment)
    assert policy(np.zeros(3))[0] in range(3)
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        policy(state)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("agent", "env", "message"),
    [
        (rp.IQN(), lambda: Echo(spaces.Text(3)), "cannot read observations from Text"),
        (rp.IQN(), lambda: Echo(action_space=spaces.Text(2)), "cannot act in Text"),
        (rp.IQTD3(), lambda: Echo(action_space=spaces.Box(-np.inf, 1.0, (1,))), "actions need bounds"),
        (rp.IQTD3(), lambda: Echo(), "needs continuous actions, but this environment has discrete actions"),
        (
            rp.IQN(),
            lambda: Echo(action_space=spaces.Box(-1.0, 1.0, (1,))),
            "needs discrete actions, but this environment has continuous actions",
        ),
        (rp.IQN(), "CartPole-v7", "unknown environment 'CartPole-v7'"),
        (rp.IQN(), "Nothing-v0", "unknown environment 'Nothing-v0'"),
        (rp.IQN(), lambda: 3, "must return a gymnasium.Env, got a int"),
        (rp.IQN(), lambda: 1 / 0, "cannot make the environment: ZeroDivisionError"),
        (LIGHT, lambda: Echo(fails_at=2), "failed in step: ValueError: the motor is broken"),
        (
            rp.TQL(),
            lambda: Echo(),
            r"episode limit of this environment is unknown: give network=rp.Network\(window=10\)",
        ),
        (rp.IQN(), SyncVectorEnv([lambda: Echo()]), "SAME_STEP"),
        (rp.IQN(), SyncVectorEnv([lambda: Echo()] * 3, autoreset_mode=AutoresetMode.SAME_STEP), "has 3 environments"),
        ([rp.IQN(), rp.IQN()], ["RiskyGrid", "CartPole-v1"], "cannot be trained together"),
        (rp.IQN(), 7, "cannot train on a int"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(agent, env, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        rp.train(agent, env, steps=50)
    assert "\n" not in str(refused.value)


@pytest.mark.long  # tests/training/test_train.py has several settings in one program
def test_settings_have_their_own_environments(unchecked):
    agents = [rp.IQN(rp.CVaR(level), **NUMBERED) for level in (0.5, 1.0)]
    run = rp.train(agents, [lambda: Echo(length=3, masked=True), lambda: Still(np.ones(3))], steps=50)
    assert run.evaluate(2).returns[:, 0].tolist() == [[3.0, 3.0], [5.0, 5.0]]
    first = Echo().reset(seed=0)[0]
    for setting, obs, among in ((0, first, (1, 2)), (1, np.ones(3, np.float32), (0, 1, 2))):
        believed = run.policy(setting=setting).estimate(obs)
        assert run.estimates()[setting, 0] == pytest.approx(max(believed[i] for i in among), rel=1e-4)


def test_an_object_that_cannot_be_made_again_serves_one_lane_and_stays_open(unchecked):
    env, closed = Echo(), []
    env.close = lambda: closed.append(True)
    told: list[Any] = []
    run = rp.train(LIGHT, env, steps=80, callbacks=[lambda run, numbers: told.append(numbers.get("estimate"))])
    assert run.steps == 80
    assert np.isfinite(told[-1]).all()
    assert run.estimates() == pytest.approx(told[-1].reshape(1, 1))
    with pytest.raises(rp.RiskpathError, match="evaluation needs environments of its own: give env="):
        run.evaluate(2)
    assert run.evaluate(2, env=Echo).returns.tolist() == [[[5.0, 5.0]]]
    with pytest.raises(rp.RiskpathError, match="evaluation needs environments of its own"):
        rp.train(LIGHT, env, steps=50, evaluate_every=10)
    with pytest.raises(rp.RiskpathError, match="give a function that makes one"):
        rp.train(LIGHT, Echo(), steps=50, seeds=2)
    assert rp.train(run, steps=20).steps == 100
    assert not closed
    assert env.reset(seed=0)[0].shape == (3,)


def test_a_vector_environment_is_trained_on_but_not_evaluated_in(unchecked, untrained):
    row = SyncVectorEnv([Echo] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    run = rp.train(AGENT, row, steps=60, seeds=2)
    assert np.isfinite(run.estimates()).all()
    for env in (None, row):
        with pytest.raises(rp.RiskpathError, match="give env=…, an id or a function that makes one environment"):
            run.evaluate(2, env=env)
    assert (run.evaluate(2, env=Echo).returns == 5.0).all()


class Failing(Echo):
    """Fails once, in the middle of training."""

    left = 70

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise ValueError("the motor\nis broken")
        return super().step(action)


@pytest.mark.parametrize("env", [Failing(), Failing], ids=["object", "function"])
def test_an_error_in_the_middle_of_training_leaves_what_was_learned(env, tmp_path, unchecked):
    with pytest.raises(rp.TrainingStopped, match="failed in step: ValueError: the motor is broken") as stop:
        rp.train(LIGHT, env, steps=100, checkpoint=tmp_path / "run")
    run = stop.value.run
    assert run.steps == 60  # 40 of warm-up, then chunks of 10
    assert rp.load(tmp_path / "run", env=Failing).steps == 60
    assert rp.train(run, steps=20).steps == 80  # in a new episode
    assert (np.asarray(run.lanes.time_step.time) == 20 % 5).all()


def test_a_save_that_fails_leaves_what_was_learned(tmp_path, monkeypatch, unchecked):
    def full(run, path):
        if run.steps:  # not yet before the first step
            raise rp.RiskpathError("cannot save: no space left")

    monkeypatch.setattr(checkpoint, "write_checkpoint", full)
    with pytest.raises(rp.TrainingStopped, match="no space left") as stop:
        rp.train(LIGHT, Echo, steps=60, checkpoint=tmp_path / "run")
    assert stop.value.run.steps == 60


def test_ctrl_c_is_delayed_in_steps_and_nowhere_else(unchecked):
    before = signal.getsignal(signal.SIGINT)

    class Heard(Echo):
        def step(self, action):
            assert signal.getsignal(signal.SIGINT) is not before
            return super().step(action)

    def broken(run, numbers):
        assert signal.getsignal(signal.SIGINT) is before
        raise ZeroDivisionError

    with pytest.raises(rp.TrainingStopped, match="a callback failed: ZeroDivisionError") as raised:
        rp.train(LIGHT, Heard, steps=60, callbacks=[broken])
    assert signal.getsignal(signal.SIGINT) is before
    assert raised.value.run.steps == 40  # its traceback keeps the loop alive until here


def test_an_episode_is_finished_unless_it_was_cut_off_by_the_limit_asked_for(unchecked):
    run = rp.train(LIGHT, Echo, steps=50)
    own = lambda length, limit: lambda: gymnasium.wrappers.TimeLimit(Echo(length=length), limit)
    for env, limit, length, finished in (
        (Echo, None, 5, 1.0),
        (Echo, 5, 5, 1.0),
        (Echo, 3, 3, 0.0),
        (own(9, 4), None, 4, 1.0),  # a time limit of the environment's own
        (own(9, 4), 6, 4, 1.0),
        (own(9, 4), 2, 2, 0.0),
    ):
        found = run.evaluate(3, max_episode_steps=limit, env=env)
        assert (found.returns == length).all()
        assert found.finished == finished


def test_a_run_is_evaluated_inside_and_outside_of_the_program_alike(unchecked, untrained):
    # Other tests learn in the fused loop.
    grid = rp.train(LIGHT, "RiskyGrid", steps=60, seeds=2)
    outside = grid.evaluate(20, env="riskpath/RiskyGrid-v0")
    assert outside.finished == 1.0
    for seed in range(2):
        possible = grid.law(seed).atoms
        assert np.abs(outside.returns[0, seed, :, None] - possible).min(axis=-1).max() < 1e-3
    hosted = rp.train(LIGHT, "riskpath/RiskyGrid-v0", steps=60, seeds=2)
    assert hosted.evaluate(5, env="RiskyGrid").returns.shape == (1, 2, 5)
    with pytest.raises(rp.RiskpathError, match="another number of states than the one trained on: 3, not"):
        grid.evaluate(5, env="ThreeState")
