"""DSAC: its losses beside NumPy, the density of its actions, its temperature, and that it learns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import EXPLORE, GREEDY, WARM_UP
from riskpath.nn.losses import stratified
from riskpath.nn.policy_networks import SquashedGaussianActor
from riskpath.types import EnvSpec, Transition
from tests.agents.clocks import START

SPEC = EnvSpec(0, (2,), max_episode_steps=9, action_size=1)
SIZES: dict[str, Any] = {
    "batch_size": 2,
    "num_quantiles": 3,
    "num_target_quantiles": 4,
    "num_action_quantiles": 4,
    "kappa": 0.5,
    "reward_scale": 1.0,
}
TRAINING = rp.Training(**SIZES)
AGENT = rp.DSAC("cvar:0.5", discount=0.9, network=rp.Network(hidden=(4,)), training=TRAINING)


def test_the_density_of_squashed_actions_is_a_density():
    actor = SquashedGaussianActor(2, (4,), 1, key=jax.random.key(0))
    x = jnp.array([0.3, -0.5])
    keys = jax.random.split(jax.random.key(1), 4_000)
    actions, log_probs = jax.jit(jax.vmap(lambda key: actor.sample(x, key=key)))(keys)
    normal = actor(x)
    u = np.arctanh(np.asarray(actions[:, 0], np.float64))
    std = np.exp(float(normal.log_std[0]))
    log_density = -0.5 * ((u - float(normal.mean[0])) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    inside = np.abs(u) < 3
    wanted = log_density - np.log(1 - np.tanh(u) ** 2)
    np.testing.assert_allclose(np.asarray(log_probs)[inside], wanted[inside], atol=2e-3)


def test_the_loss_of_the_critics_is_its_equation():
    state, other = (AGENT.init(SPEC, key=jax.random.key(seed)) for seed in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    end, time = jnp.array(False), jnp.int32(1)
    shown = jnp.array([0.3, -1.0]), jnp.array([0.2]), jnp.float32(0.7), jnp.array([0.5, 0.2])
    step = Transition(*shown, jnp.ones((0,), bool), end, end, time, jnp.float32(1.0), ())
    batch = jax.tree.map(lambda x: jnp.stack([x] * 2), step)
    key = jax.random.key(5)
    _, found = eqx.filter_jit(AGENT._critic_step)(state, batch, START, key=key)
    online_key, target_key, draw_key = jax.random.split(key, 3)
    taus, target_taus = stratified(3, key=online_key), stratified(4, key=target_key)
    alpha, losses = float(jnp.exp(state.params.log_alpha)), []
    for draw in jax.random.split(draw_key, 2):
        encoder = state.params.critic.encoder
        action, log_prob = state.params.actor.sample(encoder(step.next_observation), key=draw)
        x = state.target_params.critic.encoder(step.next_observation)
        laws = [np.asarray(z.quantiles(x, action, target_taus)) for z in state.target_params.critic.twins]
        target = 0.7 + 0.9 * (min(laws, key=lambda law: law.mean()) - alpha * float(log_prob))
        for critic in state.params.critic.twins:
            error = (
                target[None, :] - np.asarray(critic.quantiles(encoder(step.observation), step.action, taus))[:, None]
            )
            huber = np.where(np.abs(error) <= 0.5, 0.5 * error**2, 0.5 * (np.abs(error) - 0.25))
            losses.append((np.abs(np.asarray(taus)[:, None] - (error < 0)) * huber / 0.5).mean(axis=1).sum())
    assert float(found) == pytest.approx(np.sum(losses) / 2, rel=1e-4)


@pytest.mark.parametrize(("wanted", "rises"), [(5.0, True), (-50.0, False)])
def test_the_temperature_follows_the_entropy(wanted, rises):
    agent = rp.DSAC(network=AGENT.network, training=TRAINING, target_entropy=jnp.asarray(wanted))
    state = agent.init(SPEC, key=jax.random.key(0))
    end = jnp.zeros((2,), bool)
    zeros, two = jnp.zeros(2), jnp.zeros((2, 2))
    make = jax.vmap(lambda s, a, r, e: Transition(s, a, r, s, jnp.ones((0,), bool), e, e, jnp.int32(0), r, ()))
    batch = make(two, jnp.zeros((2, 1)), zeros, end)
    after = eqx.filter_jit(lambda agent: agent._actor_step(state, batch, START, key=jax.random.key(1)))(agent)
    assert bool(after.params.log_alpha > state.params.log_alpha) is rises


def test_modes_are_uniform_drawn_and_greedy():
    state = AGENT.init(SPEC, key=jax.random.key(0))
    shown = SPEC.first_time_step(jnp.array([0.3, -1.0]), jnp.ones((0,), bool))
    keys = jax.random.split(jax.random.key(1), 500)
    modes = jax.tree.map(lambda *flags: jnp.asarray(flags), GREEDY, EXPLORE, WARM_UP)
    act = lambda mode: jax.vmap(lambda key: AGENT.act(state, (), shown, key=key, mode=mode).action)(keys)
    greedy, explored, warm = np.asarray(jax.jit(jax.vmap(act))(modes))
    assert np.ptp(greedy) == 0
    assert explored.std() > 0.1
    assert warm.std() == pytest.approx(1 / np.sqrt(3), abs=0.05)


class Nearest(rp.Environment):
    """One step: the reward is highest if the action is half of the observation."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(0, (1,), max_episode_steps=1, action_size=1)

    def reset(self, key):
        observation = jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
        return observation, observation

    def step(self, key, state, action):
        yes = jnp.ones((), bool)
        return state, state, -((action - 0.5 * state) ** 2)[0], yes, ~yes

    def action_mask(self, state):
        return jnp.ones((0,), bool)


@pytest.mark.long  # both losses are compared with their equations
def test_it_learns(unchecked):
    sizes: dict[str, Any] = {"batch_size": 32, "learning_starts": 200, "train_freq": 4}
    sizes |= {"num_action_quantiles": 8, "num_quantiles": 8, "num_target_quantiles": 8}
    training, actor = rp.Training(**sizes, learning_rate=3e-3), rp.ActorTraining(learning_rate=3e-3)
    agent = rp.DSAC(network=rp.Network(hidden=(16,)), training=training, actor=actor)
    run = rp.train(agent, Nearest(), steps=4_000, num_envs=4, seeds=2)
    assert run.evaluate(200).returns.mean() > -0.01  # random play: −0.42
