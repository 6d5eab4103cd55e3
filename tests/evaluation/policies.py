"""Small environments and untrained policies that tests of this folder share."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
from gymnasium import spaces

import riskpath as rp
from riskpath.envs.environment import Environment
from riskpath.envs.finite import action_numbers, finite, state_numbers
from riskpath.envs.spaces import Translation
from riskpath.envs.vector import HostEnvironment
from riskpath.evaluation.learned_policy import LearnedPolicy

# Episodes have one to five steps. Each state has one action that the other one does not have.
MAZE = rp.FiniteMDP.from_outcomes(
    {
        ("a", "on"): [(0.7, 1.0, "b"), (0.3, 0.0, "a")],
        ("a", "out"): [(0.4, 5.0, "end"), (0.6, 2.0, "b")],
        ("b", "on"): [(0.6, 2.0, "a"), (0.4, 0.0, "b")],
        ("b", "back"): [(0.5, 3.0, "a"), (0.3, 4.0, "b"), (0.2, 0.0, "end")],
    },
    "a",
    horizon=5,
)
FEATURES = {"a": (0.0, 2.0), "b": (1.0, -2.0), "end": (0.5, 0.0)}
OBSERVED_ENV = finite(dataclasses.replace(MAZE, features=FEATURES))
NAMES, ACTIONS = list(state_numbers(MAZE)), list(action_numbers(MAZE))
MAZE_ENV, CAR = finite(MAZE), rp.RiskyMountainCar(0.5, max_episode_steps=7)
TINY = rp.Network(hidden=(8,), history_size=4)


def gymnasium_like(observation_space: spaces.Space, action_space: spaces.Space) -> HostEnvironment:
    """Return the stand-in for a Gymnasium environment with these spaces."""
    translation = Translation(observation_space, action_space, max_episode_steps=10)
    return HostEnvironment(translation.spec, translation)


PIXELS = gymnasium_like(spaces.Box(0, 255, (8, 8), np.uint8), spaces.Discrete(2))
NUMBERS = gymnasium_like(spaces.Discrete(4, start=3), spaces.Discrete(3, start=5))
BOXES = gymnasium_like(spaces.Box(-1.0, 2.0, (2,)), spaces.Box(-2.0, np.array([1.0, 5.0], np.float32)))


def untrained(agent: rp.Agent, env: Environment, seed: int = 0) -> LearnedPolicy:
    """Return an untrained policy with large weights, so that its memory changes its actions."""
    critic = agent.init(env.spec, key=jax.random.key(seed))
    large = jax.tree.map(lambda x: 4.0 * x if eqx.is_inexact_array(x) else x, critic.params)
    return LearnedPolicy(agent, eqx.tree_at(lambda state: state.params, critic, large), env)
