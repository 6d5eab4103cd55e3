"""PPO in one function of plain JAX and Optax, as PureJaxRL writes it: what a researcher without a library would run.

`ppo_speed.py` compares rates with it. It has neither units of the critic nor normalised observations, no checks, no
progress, no record of episodes beyond their number, and no value after a time limit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from cart_pole import CartPole


class Sizes(NamedTuple):
    """Sizes that all programs share."""

    num_envs: int = 8
    length: int = 128
    epochs: int = 4
    minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)


def network(key: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return weights and biases of a multi-layer perceptron."""
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.nn.initializers.orthogonal()(k, (i, o)), jnp.zeros(o)) for k, i, o in shapes]


def forward(layers: list[Any], x: Any) -> Any:
    """Return the outputs for a batch of observations."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def log_probs(params: Any, observations: Any) -> Any:
    """Return log π(a | s) of all actions."""
    return jax.nn.log_softmax(forward(params["policy"], observations))


def loss(params: Any, batch: dict[str, Any]) -> Any:
    """Return PPO's loss of a minibatch."""
    logs = log_probs(params, batch["observation"])
    ratio = jnp.exp(jnp.take_along_axis(logs, batch["action"][:, None], axis=1)[:, 0] - batch["log_prob"])
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    error = (forward(params["critic"], batch["observation"])[:, 0] - batch["target"]) ** 2
    entropy = -(jnp.exp(logs) * logs).sum(axis=1)
    return jnp.mean(-surrogate + 0.25 * error - 0.005 * entropy)


def make(sizes: Sizes) -> tuple[Any, Any]:
    """Return `init(key)` and `iteration(state)`: a rollout in all environments and the epochs that learn from it."""
    env, optimiser = CartPole(), optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def init(key: Any) -> Any:
        key, policy_key, critic_key, reset_key = jax.random.split(key, 4)
        policy, critic = network(policy_key, (4, *sizes.hidden, 2)), network(critic_key, (4, *sizes.hidden, 1))
        params = {"policy": policy, "critic": critic}
        observation, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, sizes.num_envs))
        return params, optimiser.init(params), env_state, observation, key

    def step(carry: Any, _: None) -> Any:
        params, env_state, observation, key = carry
        key, act_key, *keys = jax.random.split(key, 2 + 2 * sizes.num_envs)
        logs = log_probs(params, observation)
        action = jax.random.categorical(act_key, logs)
        env_keys, reset_keys = jnp.stack(keys).reshape(2, sizes.num_envs, *keys[0].shape)
        after, env_state_after, reward, terminated, truncated = jax.vmap(env.step)(env_keys, env_state, action)
        fresh, fresh_state = jax.vmap(env.reset)(reset_keys)
        done = terminated | truncated
        pick = lambda a, b: jnp.where(done.reshape(-1, *[1] * (a.ndim - 1)), a, b)
        following = jax.tree.map(pick, (fresh, fresh_state), (after, env_state_after))
        log_prob = jnp.take_along_axis(logs, action[:, None], axis=1)[:, 0]
        value = forward(params["critic"], observation)[:, 0]
        stored = {"observation": observation, "action": action, "log_prob": log_prob, "value": value}
        return (params, following[1], following[0], key), stored | {"reward": reward, "done": done}

    def iteration(state: Any) -> Any:
        params, opt_state, env_state, observation, key = state
        (_, env_state, observation, key), steps = jax.lax.scan(
            step, (params, env_state, observation, key), None, length=sizes.length
        )
        last = forward(params["critic"], observation)[:, 0]

        def back(carry: Any, now: Any) -> Any:
            advantage, following = carry
            alive = 1.0 - now["done"]
            delta = now["reward"] + 0.99 * following * alive - now["value"]
            advantage = delta + 0.99 * 0.95 * alive * advantage
            return (advantage, now["value"]), advantage

        _, advantage = jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)
        steps |= {"advantage": advantage, "target": advantage + steps["value"]}
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        count = sizes.num_envs * sizes.length

        def minibatch(carry: Any, part: Any) -> Any:
            params, opt_state = carry
            updates, opt_state = optimiser.update(jax.grad(loss)(params, part), opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), None

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, count).reshape(sizes.minibatches, -1)
            return jax.lax.scan(minibatch, carry, jax.tree.map(lambda x: x[order], samples))

        key, *keys = jax.random.split(key, 1 + sizes.epochs)
        (params, opt_state), _ = jax.lax.scan(epoch, (params, opt_state), jnp.stack(keys))
        return (params, opt_state, env_state, observation, key), steps["done"].sum()

    return init, iteration
