"""An agent of one's own: IQN with one method changed, so that it explores by temperature. Two of them, one program."""

import jax
import jax.numpy as jnp

import riskpath as rp
from riskpath.agents.learning import masked_argmax


class SoftIQN(rp.IQN):
    """IQN whose exploration prefers what looks good."""

    temperature: float | jax.Array = 10.0
    """How far below the best an action may be and still be tried often, in units of the return."""

    def act(self, state, memory, percept, *, key, explore):
        """The best action; when exploring, one drawn by a softmax of what each is worth."""
        values = self.estimate(state, memory, percept)
        coin, noise = jax.random.split(key)
        tried = values + self.temperature * jax.random.gumbel(noise, values.shape)
        return masked_argmax(jnp.where(jax.random.uniform(coin) < explore, tried, values), percept.mask), memory


training = rp.Training(
    learning_starts=200,
    learning_rate=0.03,
    learning_rate_end=0.003,
    learning_rate_steps=2_000.0,
    epsilon_start=0.5,
    epsilon_end=0.5,
)
table = rp.Network(head="table")
agents = [
    SoftIQN(rp.CVaR(0.9), discount=1.0, network=table, training=training, temperature=temperature)
    for temperature in (1.0, 100.0)
]
run = rp.train(agents, "ThreeState", steps=2_000, seeds=2)  # fields that are floats may differ: one program
best = rp.solve(rp.make("ThreeState").mdp(), rp.CVaR(0.9), "history")
for agent, values in zip(agents, run.values(), strict=True):
    print(f"temperature {agent.temperature:5}: {agent.risk} by seed {values.round(2)}, the best is {best.value:.2f}")
