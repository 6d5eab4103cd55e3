"""Write an agent: IQN that explores by a softmax instead of uniformly. Two temperatures train in one program."""

import jax
import jax.numpy as jnp

import riskpath as rp
from riskpath.agents.learning import epsilon_of, masked_argmax


class SoftIQN(rp.MemorylessAgent):
    """IQN whose exploration prefers actions with a high estimate."""

    temperature: float | jax.Array = 10.0
    """How far below the best an action may be and still be tried often, in units of the return."""

    @property
    def iqn(self) -> rp.IQN:
        """Return the agent that learns."""
        return rp.IQN(self.risk, self.discount, self.network, self.training, exploration=self.exploration)

    def init(self, spec, *, key):
        """Return a fresh critic."""
        return self.iqn.init(spec, key=key)

    def act(self, state, memory, time_step, *, key, mode):
        """Return the best action or, with probability epsilon, one drawn by a softmax of the estimates."""
        values = self.estimate(state, memory, time_step)
        epsilon = epsilon_of(self, mode)
        coin, noise = jax.random.split(key)
        explored = values + self.temperature * jax.random.gumbel(noise, values.shape)
        values = jnp.where(jax.random.uniform(coin) < epsilon, explored, values)
        return rp.ActorOutput(masked_argmax(values, time_step.action_mask))

    def update(self, state, batch, clock, *, key):
        """Take one gradient step."""
        return self.iqn.update(state, batch, clock, key=key)

    def quantiles(self, state, memory, time_step, taus):
        """Return the quantiles of the return to go."""
        return self.iqn.quantiles(state, memory, time_step, taus)


training = rp.Training(learning_rate=0.03, learning_starts=200)
table = rp.Network(head="table")
agents = [
    SoftIQN(
        rp.CVaR(0.9),
        discount=1.0,
        network=table,
        training=training,
        exploration=rp.EpsilonGreedy(0.5, 0.5),
        temperature=temperature,
    )
    for temperature in (1.0, 100.0)
]
run = rp.train(agents, "ThreeState", steps=2_000, seeds=2)  # float fields may differ between settings
best = rp.solve(rp.make("ThreeState").mdp(), rp.CVaR(0.9), "history")
for agent, values in zip(agents, run.values(), strict=True):
    print(f"temperature {agent.temperature:5}: {agent.risk} by seed {values.round(2)}, the best is {best.value:.2f}")
