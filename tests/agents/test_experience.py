"""How steps become batches: what each experience asks of the loop, and the order of what it returns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import EXPLORE, GREEDY, WARM_UP
from riskpath.agents.experience import Logged, Replay, Rollout
from riskpath.agents.learning import epsilon_of
from riskpath.agents.replay_buffer import add
from riskpath.types import EnvSpec, Transition

SPEC = EnvSpec(2, (), num_states=1_000, max_episode_steps=6)


@pytest.mark.parametrize(
    ("experience", "num_envs", "moves", "updates", "warm_up"),
    [
        (Replay(100, 4, 1, warm_up=50), 1, 1, 1, 50),
        (Replay(100, 4, 1, warm_up=50), 8, 1, 8, 50),
        (Replay(100, 4, 8, warm_up=50), 2, 4, 1, 50),
        (Replay(100, 4, 8, warm_up=50), 16, 1, 2, 50),
        (Rollout(5), 3, 5, 1, 0),
        (Logged(100, 4), 1, 0, 1, 0),
    ],
)
def test_an_iteration_is_moves_and_updates(experience, num_envs, moves, updates, warm_up):
    experience.require_fit(num_envs)
    assert (*experience.iteration(num_envs), experience.warm_up) == (moves, updates, warm_up)


@pytest.mark.parametrize(("experience", "num_envs"), [(Replay(100, 4, 3), 2), (Logged(100, 4), 2)])
def test_environments_that_leave_a_rest_are_refused(experience, num_envs):
    with pytest.raises(rp.RiskpathError, match="num_envs"):
        experience.require_fit(num_envs)


def steps(numbers: np.ndarray) -> Transition:
    """Return transitions whose observations are these numbers."""
    zero, no, mask = jnp.zeros(()), jnp.zeros((), bool), jnp.ones(2, bool)
    one = lambda seen: Transition(seen, seen, zero, seen, mask, no, no, seen, zero, ())
    return jax.jit(jax.vmap(one))(jnp.asarray(numbers, jnp.int32))


compiled_add = eqx.filter_jit(add)


def test_a_rollout_is_every_environment_of_its_own_lane_in_order():
    rollout, lanes, envs = Rollout(3), 2, 4
    store = rollout.init(jax.tree.map(lambda x: x[0], steps(np.zeros(1))), lanes, envs)
    for time in range(6):  # two rollouts: the second one replaces the first
        store = compiled_add(store, steps(100 * time + np.arange(lanes * envs)))
    first = jax.vmap(jax.vmap(SPEC.first_time_step))(
        jnp.zeros((lanes, envs), jnp.int32), jnp.ones((lanes, envs, 2), bool)
    )
    keys = jax.random.split(jax.random.key(0), lanes)
    batch = eqx.filter_jit(rollout.batch)(store, lanes, first, (), keys=keys)
    wanted = 100 * np.arange(3, 6)[None, :, None] + np.arange(lanes * envs).reshape(lanes, 1, envs)
    np.testing.assert_array_equal(batch.steps.observation, wanted)
    assert batch.following.time.shape == (lanes, envs)


def test_all_lanes_draw_from_all_logged_steps():
    logged = Logged(50, 400)
    store = logged.init(jax.tree.map(lambda x: x[0], steps(np.zeros(1))), 3, 1)
    for time in range(50):
        store = compiled_add(store, steps(np.array([time])))
    first = SPEC.first_time_step(jnp.int32(0), jnp.ones(2, bool))
    batch = eqx.filter_jit(logged.batch)(store, 3, first, (), keys=jax.random.split(jax.random.key(0), 3))
    drawn = np.asarray(batch.observation)
    assert drawn.shape == (3, 400)
    assert all(set(lane) == set(range(50)) for lane in drawn)
    assert not (drawn[0] == drawn[1]).all()


@pytest.mark.parametrize(("mode", "epsilon"), [(GREEDY, 0.0), (EXPLORE, 0.3), (WARM_UP, 1.0)])
def test_the_mode_decides_how_much_is_explored(mode, epsilon):
    agent = rp.IQN(network=rp.Network(head="table"), exploration=rp.EpsilonGreedy(initial_eps=0.3))
    assert float(epsilon_of(agent, mode)) == pytest.approx(epsilon)


def test_without_random_actions_adaptive_still_explores_goals():
    small = rp.Training(num_quantiles=4, num_action_quantiles=4, batch_size=4)
    calm = rp.EpsilonGreedy(0.0, 0.0)
    agent = rp.Adaptive("cvar:0.3", network=rp.Network(hidden=(4,)), training=small, exploration=calm)
    state = agent.init(SPEC, key=jax.random.key(0))
    first = SPEC.first_time_step(jnp.int32(0), jnp.ones(2, bool))
    keys = jax.random.split(jax.random.key(1), 64)

    def goals(mode: rp.Mode) -> np.ndarray:
        start = lambda key: agent.begin_or_advance(state, state.initial_memory, first, key=key, mode=mode)
        return np.asarray(jax.jit(jax.vmap(start))(keys).context.goal)

    assert len(np.unique(goals(EXPLORE))) > 16
    assert len(np.unique(goals(GREEDY))) == 1
