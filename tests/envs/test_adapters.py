"""riskpath environments seen as Gymnasium ones, gymnax environments seen as riskpath ones, and the pictures."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import riskpath as rp
from riskpath import envs
from riskpath.envs.finite import finite
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.gymnax_env import from_gymnax
from riskpath.envs.rendering import CELLS, FOOTER, Canvas
from riskpath.types import EnvSpec

IDS = [f"riskpath/{name}-v0" for name in envs.BY_NAME]
DRAWN = ["riskpath/RiskyGrid-v0", "riskpath/ThreeState-v0"]
RIGHT, DOWN = 0, 1

# Three steps at most; the second action of "a" has no counterpart in "b", which has a third one.
MASKED = rp.FiniteMDP.from_outcomes(
    {
        ("a", "on"): [(1.0, 1.0, "b")],
        ("a", "out"): [(1.0, 5.0, "end")],
        ("b", "on"): [(1.0, 2.0, "b")],
        ("b", "back"): [(0.5, 3.0, "a"), (0.5, 4.0, "b")],
    },
    "a",
    horizon=3,
)


def episode(env: gymnasium.Env, actions: list[int], seed: int | None = None) -> list[Any]:
    """Everything that is told until the end."""
    obs, info = env.reset(seed=seed)
    told: list[Any] = [(obs, info["action_mask"].tolist())]
    for action in actions:
        obs, *outcome, info = env.step(action)
        told.append((obs, *outcome, info["action_mask"].tolist()))
    return told


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_to_complain_about(name):
    check_env(gymnasium.make(name).unwrapped)


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_seed_gives_the_same_episodes(name):
    env = gymnasium.make(name)
    actions = [0] * 2 if "Three" in name else [DOWN, RIGHT] * 3
    first, second = ([episode(env, actions, seed), *(episode(env, actions) for _ in range(20))] for seed in (7, 7))
    assert first == second
    assert len({str(told) for told in first}) > 1  # a reset without a seed goes on, it does not start over
    assert [episode(env, actions, seed) for seed in range(20)] != [first[0]] * 20


def test_fields_go_through_make_and_wrong_ones_are_named():
    env: Any = gymnasium.make("riskpath/RiskyGrid-v0", forks=5, blue=38.0)
    assert env.observation_space == gymnasium.spaces.Discrete(36)
    assert sum(outcome[1] for outcome in episode(env, [RIGHT, DOWN] * 5, 0)[1:]) == 5 * 38 - 10 * 2
    with pytest.raises(rp.RiskpathError, match=r"RiskyGrid has no field 'fork' \(did you mean forks\?\)"):
        gymnasium.make("riskpath/RiskyGrid-v0", fork=5)


def test_the_mask_says_what_is_available_and_the_rest_is_refused():
    env = GymnasiumEnv(finite(MASKED))
    assert env.action_space == gymnasium.spaces.Discrete(3)  # on, out, back
    obs, info = env.reset(seed=0)
    assert (obs, info["action_mask"].tolist(), info["action_mask"].dtype) == (0, [1, 1, 0], np.int8)
    assert {env.action_space.sample(mask=info["action_mask"]) for _ in range(50)} == {0, 1}
    obs, reward, *_, info = env.step(0)
    assert (obs, reward, info["action_mask"].tolist()) == (1, 1.0, [1, 0, 1])
    for action in (1, 3, -1):
        with pytest.raises(rp.RiskpathError, match=f"action {action} is not available here; there are 0, 2"):
            env.step(action)
    info["action_mask"][:] = 1  # a user's array is the user's
    with pytest.raises(rp.RiskpathError, match="action 1 is not available"):
        env.step(1)


@pytest.mark.parametrize(
    ("actions", "flags"),
    [([1], [(True, False)]), ([0, 0, 0], [(False, False), (False, False), (False, True)])],
    ids=["an end", "a time limit"],
)
def test_an_end_is_not_a_time_limit(actions, flags):
    env = GymnasiumEnv(finite(MASKED))
    assert [tuple(outcome[2:4]) for outcome in episode(env, actions, 0)[1:]] == flags
    with pytest.raises(rp.RiskpathError, match="the episode is over or has not begun: call reset"):
        env.step(0)
    assert len(episode(env, actions)) == len(actions) + 1


def test_returns_have_the_exact_law():
    env = gymnasium.make("riskpath/RiskyGrid-v0")
    law = rp.RiskyGrid().mdp().evaluate(["down", "right", "down", "right", "right", "down"])
    env.reset(seed=1)
    returns = [sum(o[1] for o in episode(env, [DOWN, RIGHT, DOWN, RIGHT, RIGHT, DOWN])[1:]) for _ in range(400)]
    assert len(law.atoms) == 3
    for atom, prob in zip(law.atoms, law.probs, strict=True):
        assert abs(np.mean(np.isclose(returns, atom)) - prob) < 5 * (prob * (1 - prob) / 400) ** 0.5
    assert abs(np.mean(returns) - law.mean) < 5 * law.std / 20


@pytest.mark.parametrize("name", DRAWN)
def test_every_position_has_its_own_picture(name):
    env: Any = gymnasium.make(name, render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    over = False
    while not over:
        *_, over, _, _ = env.step(0)
        frames.append(env.render())
    assert all(frame.dtype == np.uint8 and frame.shape == frames[0].shape for frame in frames)
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0  # as videos want it
    assert len({frame.tobytes() for frame in frames}) == len(frames) == env.unwrapped.sizes.max_episode_steps + 1
    env.reset()
    assert (env.render() == frames[0]).all()  # nothing is left of the episode before


@pytest.mark.parametrize("forks", [1, 3, 5, 15])
def test_the_picture_of_the_grid_shows_its_cells_and_the_agent(forks):
    grid = rp.RiskyGrid(forks=forks)
    env = GymnasiumEnv(grid, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(DOWN)
    image = env.render()
    pitch = (image.shape[1] - 32) // (forks + 1)
    for row in range(forks + 1):
        for col in range(forks + 1):
            top, left = 16 + row * pitch, 16 + col * pitch
            colour = CELLS[grid.colour(row, col)]
            corner = image[top + pitch // 5, left + pitch // 5]
            assert corner.tolist() == [colour >> 16, colour >> 8 & 255, colour & 255]
            centre = image[top + pitch // 2, left + pitch // 2]
            if pitch > 20:
                assert (centre.tolist() == [255, 255, 255]) == ((row, col) == (1, 0))
    assert (image[16 + pitch, 16 + pitch // 2] < 60).all()  # the way from the start


@pytest.mark.parametrize("part", [slice(None, -FOOTER), slice(-FOOTER, None)], ids=["cell", "total"])
def test_the_picture_tells_what_was_earned(part):
    env = GymnasiumEnv("RiskyGrid", render_mode="rgb_array")
    images: dict[float, set[bytes]] = {}
    for seed in range(12):
        env.reset(seed=seed)
        images.setdefault(env.step(DOWN)[1], set()).add(env.render()[part].tobytes())
    assert [len(seen) for seen in images.values()] == [1, 1]  # won or lost, and nothing else matters
    assert len(set.union(*images.values())) == 2


def test_the_picture_of_the_car_moves_with_it():
    env: Any = gymnasium.make("riskpath/RiskyMountainCar-v0", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(np.ones(1, np.float32))
    assert before.dtype == np.uint8
    assert (env.render() != before).any()
    assert env.metadata["render_fps"] == 30


def test_a_shape_at_the_border_is_cut_off_and_its_edge_is_smooth():
    canvas = Canvas(20, 10)
    canvas.disc((0.0, 0.0), 5, 0)
    canvas.disc((20.0, 10.0), 5, 0)
    image = canvas.bytes()[:, :, 0] / 255
    assert (image == image[::-1, ::-1]).all()
    assert ((image > 0.1) & (image < 0.9)).any()
    assert (1 - image).sum() == pytest.approx(2 * np.pi * 25 / 4, rel=0.02)


class Params(eqx.Module):
    """gymnax's parameters are Python numbers until someone makes arrays of them."""

    stride: Any = 1.0
    reach: Any = 2.0
    max_steps_in_episode: Any = 5


class Spot(eqx.Module):
    place: Any
    time: Any


class Modern:
    """A walk on a line, with the methods that gymnax 1.0 environments have."""

    default_params = Params()
    acts = SimpleNamespace(n=2)

    def reset_env(self, key, params) -> Any:
        return jnp.zeros(2), Spot(0.0, 0)  # Python numbers, as gymnax does

    def step_env(self, key, state, action, params):
        forward = action[0] if jnp.ndim(action) else 2.0 * action.astype(jnp.float32) - 1.0
        state = Spot(state.place + params.stride * forward, state.time + 1)
        obs = jnp.stack([state.place, jnp.zeros(())])
        return obs, state, state.place, jnp.abs(state.place) >= params.reach, {}

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params=None):
        return self.acts

    def observation_space(self, params):
        return SimpleNamespace(low=-jnp.full(2, 3e38), high=jnp.full(2, 3e38), shape=(2,))


class Legacy(Modern):
    """Before 1.0 the time limit was an end."""

    is_truncated: Any = property()  # hasattr says no

    def step_env(self, key, state, action, params):
        obs, state, reward, done, info = super().step_env(key, state, action, params)
        return obs, state, reward, done | (state.time >= params.max_steps_in_episode), info


class Pushed(Modern):
    """Actions are forces, and their bounds depend on the parameters."""

    def action_space(self, params=None):
        assert params is not None
        return SimpleNamespace(low=-0.5 * params.stride, high=params.stride, shape=(1,))


class Numbered(Modern):
    """Observations are numbers of states."""

    def reset_env(self, key, params):
        return 0, Spot(0.0, 0)

    def observation_space(self, params):
        return SimpleNamespace(n=3)


class Wrapper:
    """Lends what is inside, as gymnax's wrappers do."""

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)


def walk(world: Any, actions: list[Any]) -> list[tuple[float, ...]]:
    _, state = world.reset(jax.random.key(0))
    told = []
    for action in actions:
        obs, state, reward, terminated, truncated = world.step(jax.random.key(0), state, action)
        assert obs.dtype == reward.dtype == jnp.float32
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
        told.append((float(obs[0]), float(reward), bool(terminated), bool(truncated)))
    return told


@pytest.mark.parametrize(
    ("env", "last"),
    [(Modern(), (1.0, 1.0, False, True)), (Legacy(), (1.0, 1.0, True, False))],
    ids=["gymnax 1", "gymnax 0"],
)
def test_gymnax_tells_ends_from_time_limits_since_1(env, last):
    world = from_gymnax(env)
    assert world.spec == EnvSpec(2, (2,), max_episode_steps=5)
    there, back = jnp.asarray(1, jnp.int32), jnp.asarray(0, jnp.int32)
    assert walk(world, [there, back, there, back, there])[-1] == last
    assert walk(world, [there, there]) == [(1.0, 1.0, False, False), (2.0, 2.0, True, False)]
    at_once = from_gymnax(env, Params(max_steps_in_episode=2))
    assert walk(at_once, [there, there])[-1] == (2.0, 2.0, True, False)  # both: it counts as an end


def test_gymnax_forces_are_rescaled_to_bounds_that_depend_on_parameters():
    for stride in (2.0, np.float32(2.0), jnp.asarray(2.0)):
        world = from_gymnax(Pushed(), Params(stride=stride, reach=100.0))
        assert (world.spec.num_actions, world.spec.action_size) == (0, 1)
        pushes = [jnp.full((1,), push) for push in (-1.0, 1.0, 0.0)]
        assert np.diff([0.0, *(told[0] for told in walk(world, pushes))]).tolist() == [-2.0, 4.0, 1.0]


def test_gymnax_spaces_become_sizes():
    numbered = from_gymnax(Numbered())
    obs, _ = numbered.reset(jax.random.key(0))
    assert (numbered.spec.num_states, numbered.spec.observation_shape, obs.dtype) == (3, (), jnp.int32)
    bounded = type("Bounded", (Modern,), {})()
    bounded.observation_space = lambda params: SimpleNamespace(low=-1, high=jnp.array([2.0, 3.0]), shape=(2,))
    assert from_gymnax(bounded).spec.observation_bounds == ((-1.0, 2.0), (-1.0, 3.0))


@pytest.mark.parametrize("number", [float, np.float32, jnp.asarray], ids=["numbers", "NumPy", "arrays"])
def test_gymnax_environments_train_and_each_lane_has_its_own_parameters(number, unchecked):
    training = rp.Training(
        learning_starts=60, target_update_interval=20, batch_size=8, online_taus=8, target_taus=8, act_taus=8
    )
    agent = rp.IQN(rp.CVaR(0.25), network=rp.Network(hidden=(16,)), training=training)
    env = Modern()
    worlds = [from_gymnax(env, Params(stride=number(stride), reach=number(20.0))) for stride in (1.0, 3.0)]
    run = rp.train([agent, agent], worlds, steps=200, num_envs=2)
    assert run.steps == 200
    moves = [abs(float(place)) for place in np.asarray(run.lanes.env_state.place).ravel()]
    assert all(move % stride == 0 for move, stride in zip(moves, (1.0, 1.0, 3.0, 3.0), strict=True))
    columns = np.asarray(run.lanes.ring.rows[:100, :, 3])  # obs (2), action, reward, …: rewards are places
    assert np.abs(columns[:, 2:]).max() > 5 >= np.abs(columns[:, :2]).max() > 0
    assert run.policy()(np.zeros(2, np.float32))[0] in (0, 1)


def test_gymnax_environments_become_gymnasium_ones():
    env = GymnasiumEnv(from_gymnax(Pushed()))
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    obs, info = env.reset(seed=0)
    assert obs in env.observation_space
    assert info == {}
    obs[:] = 7.0  # a user's array is the user's
    obs, reward, terminated, truncated, _ = env.step(np.ones(1, np.float32))
    assert (obs.tolist(), reward, terminated, truncated) == ([1.0, 0.0], 1.0, False, False)
    assert env._walk is not None
    assert np.array(env._walk.observations).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GymnasiumEnv("Chess"), "unknown environment 'Chess'"),
        (
            lambda: GymnasiumEnv(rp.RiskyGrid(), forks=3),
            "give an environment alone or a name with fields, got a RiskyGrid",
        ),
        (lambda: GymnasiumEnv(MASKED), "got a FiniteMDP and {}"),  # pyright: ignore[reportArgumentType]
        (lambda: GymnasiumEnv("RiskyGrid", "human"), "RiskyGrid must be 'rgb_array' or None, got 'human'"),
        (lambda: GymnasiumEnv(finite(MASKED), "rgb_array"), "FiniteEnvironment must be None, got 'rgb_array'"),
        (lambda: GymnasiumEnv("RiskyGrid").step(0), "has not begun: call reset"),
        (lambda: GymnasiumEnv("RiskyGrid").render(), "a picture needs render_mode='rgb_array'"),
        (lambda: from_gymnax(Wrapper(Modern())), "from_gymnax needs a reset_env and no wrapper around it, got Wrapper"),
        (lambda: from_gymnax("CartPole-v1"), "needs a reset_env and no wrapper around it, got str"),
        (lambda: from_gymnax(with_actions(spaces={})), "knows Discrete and Box spaces only, got .* for actions"),
        (lambda: from_gymnax(with_actions(low=-1.0, high=3e38, shape=(1,))), "actions must have bounds"),
        (lambda: from_gymnax(with_actions(low=-3e38, high=1.0, shape=(1,))), "actions must have bounds"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def with_actions(**space: Any) -> Modern:
    env = Modern()
    env.acts = SimpleNamespace(**space)
    return env


def test_an_action_of_the_wrong_length_is_refused():
    env = GymnasiumEnv(from_gymnax(Pushed()))
    env.reset(seed=0)
    with pytest.raises(rp.RiskpathError, match=r"an action must have 1 entries, got 0\.5"):
        env.step(0.5)


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("sys.modules['gymnasium'] = None; import riskpath; print(riskpath.make('RiskyGrid').forks)", "3"),
        (
            "sys.modules['gymnasium'] = None; import riskpath as rp;"
            "run = rp.train(rp.IQN(), 'ThreeState', steps=40, evaluate_every=40); print(len(run.curve))",
            "1",
        ),
        ("import gymnasium as g; print(g.make('riskpath:riskpath/RiskyGrid-v0', forks=5).unwrapped.env.forks)", "5"),
        ("import riskpath; print([name for name in sys.modules if name.startswith(('PIL', 'gymnax'))])", "[]"),
    ],
    ids=["without Gymnasium", "training without it", "by Gymnasium alone", "nothing that is not needed"],
)
def test_import(program, shown):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; {program}"], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == (shown, "")
