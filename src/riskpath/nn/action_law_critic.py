"""Critics and actors for continuous actions that see a context beside the observation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.nn.law_critic import Inputs
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key


class ActionLawCritic(eqx.Module):
    """θ(s, x, a): atoms of the return to go of a continuous action."""

    inputs: Inputs
    context: eqx.nn.Linear
    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, network: Network, spec: EnvSpec, length: int, atoms: int, context: int, *, key: Key):
        inputs_key, context_key, mlp_key, out_key = jax.random.split(key, 4)
        width = network.hidden[0]
        self.inputs = Inputs(network, spec, length, key=inputs_key)
        self.context = eqx.nn.Linear(context + spec.action_size, width, use_bias=False, key=context_key)
        self.mlp = MLP(width, network.hidden[1:], key=mlp_key)
        self.out = eqx.nn.Linear(network.hidden[-1], atoms, key=out_key)

    def __call__(
        self, features: Float[Array, " H"], context: Float[Array, " F"], action: Float[Array, " C"]
    ) -> Float[Array, " N"]:
        """Return θ from the features of the observation, the context and the action."""
        return self.out(self.mlp(jax.nn.relu(features + self.context(jnp.concatenate([context, action])))))


class ContextActor(eqx.Module):
    """π(s, x) = tanh(u(s, x))."""

    inputs: Inputs
    context: eqx.nn.Linear
    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, network: Network, spec: EnvSpec, length: int, context: int, *, key: Key):
        inputs_key, context_key, mlp_key, out_key = jax.random.split(key, 4)
        width = network.hidden[0]
        self.inputs = Inputs(network, spec, length, key=inputs_key)
        self.context = eqx.nn.Linear(context, width, use_bias=False, key=context_key)
        self.mlp = MLP(width, network.hidden[1:], key=mlp_key)
        self.out = eqx.nn.Linear(network.hidden[-1], spec.action_size, key=out_key)

    def raw(self, features: Float[Array, " H"], context: Float[Array, " F"]) -> Float[Array, " C"]:
        """Return u(s, x) from the features of the observation and of the context."""
        return self.out(self.mlp(jax.nn.relu(features + self.context(context))))
