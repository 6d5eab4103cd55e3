"""How good learned policies are: many episodes of every lane at once, with the plain and the discounted return."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.loop import Lanes, begin
from riskpath.risk import RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, power


@dataclass(frozen=True)
class Evaluation:
    """Returns of many episodes of every lane's greedy policy: arrays [settings, seeds, episodes]."""

    returns: np.ndarray = field(repr=False)
    """Undiscounted."""
    discounted: np.ndarray = field(repr=False)
    """With the agent's own discount, which is what it maximises."""
    risks: list[RiskMeasure]
    """What each setting maximises."""
    finished: float
    """The share of episodes that ended before the limit on their steps."""

    def values(self, discounted: bool = False, risk: RiskMeasure | None = None) -> np.ndarray:
        """β of the whole return, [settings, seeds]: of each setting's own measure, or of a given one."""
        returns = self.discounted if discounted else self.returns
        return np.array(
            [
                [float((risk or own).value(sample)) for sample in setting]
                for own, setting in zip(self.risks, returns, strict=True)
            ]
        )

    def __str__(self) -> str:
        lines = []
        plain, discounted = self.values(), self.values(discounted=True)
        for setting, risk in enumerate(self.risks):
            figures = (
                f"{np.median(v[setting]):.4g} ({v[setting].min():.4g} to {v[setting].max():.4g})"
                for v in (plain, discounted)
            )
            lines.append("{}: undiscounted {}, discounted {}".format(risk, *figures))
        return "\n".join(lines)


@eqx.filter_jit
def rollouts(
    lanes: Lanes, spec: EnvSpec, episodes: int, limit: int, *, key: Key
) -> tuple[Float[Array, "L N"], Float[Array, "L N"], Float[Array, ""]]:
    """Greedy episodes: returns, discounted returns, and the share that ended within `limit` steps."""

    def one(agent: Any, env: Any, critic: Any, key: Key):
        def episode(key: Key):
            start_key, key = jax.random.split(key)

            def step(carry: Any) -> Any:
                time, _, env_state, percept, memory, total, discounted, key = carry
                key, act_key, env_key = jax.random.split(key, 3)
                action, memory = agent.act(critic, memory, percept, key=act_key, explore=jnp.zeros(()))
                obs, env_state, reward, terminated, truncated = env.step(env_key, env_state, action)
                total, discounted = total + reward, discounted + power(agent.discount, time) * reward
                percept = Percept(obs, reward, env.mask(env_state))
                return time + 1, terminated | truncated, env_state, percept, memory, total, discounted, key

            start = begin(agent, env, critic, spec, start_key)
            carry = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), *start, jnp.zeros(()), jnp.zeros(()), key)
            # Ended episodes wait, unchanged, for the longest one.
            going = lambda carry: ~carry[1] & (carry[0] < limit)  # noqa: E731
            end = jax.lax.while_loop(going, step, carry)
            return end[5], end[6], end[1].astype(jnp.float32)

        return jax.vmap(episode)(jax.random.split(key, episodes))

    keys = jax.random.split(key, lanes.time.shape[0])
    total, discounted, done = eqx.filter_vmap(one)(lanes.agent, lanes.env, lanes.critic, keys)
    return total, discounted, done.mean()


@eqx.filter_jit
def outlook(lanes: Lanes, spec: EnvSpec) -> Float[Array, " L"]:
    """What every lane believes an episode to be worth at its start, in its own measure."""

    def one(agent: Any, env: Any, critic: Any, key: Key) -> Float[Array, ""]:
        _, percept, memory = begin(agent, env, critic, spec, key)
        return agent.worth(critic, memory, percept)

    return eqx.filter_vmap(one)(lanes.agent, lanes.env, lanes.critic, lanes.keys)
