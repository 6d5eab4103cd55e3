"""A critic with a fixed number of outputs for each action: quantiles at fixed levels, or logits of fixed atoms."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.critics import Trunk
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key


class AtomCritic(eqx.Module):
    """θ(s, a) of all actions, N numbers each."""

    trunk: Trunk
    out: eqx.nn.Linear
    atoms: int = eqx.field(static=True)
    """N."""
    in_units: bool = eqx.field(static=True)
    """Whether outputs are returns, which follow when the unit changes; logits do not."""

    def __init__(self, network: Network, spec: EnvSpec, atoms: int, in_units: bool, *, key: Key):
        if network.head != "factored":
            raise RiskpathError(f"a critic with fixed atoms has no {network.head!r} head: leave network.head out")
        encoder_key, mlp_key, out_key = jax.random.split(key, 3)
        encoder = network.encoder(spec, key=encoder_key)
        self.trunk = Trunk(encoder, MLP(encoder.size, network.hidden, key=mlp_key))
        self.out = eqx.nn.Linear(network.hidden[-1], atoms * spec.num_actions, key=out_key)
        self.atoms, self.in_units = atoms, in_units

    def __call__(self, observation: Shaped[Array, "*obs"]) -> Float[Array, "N A"]:
        """Return θ(s, ·)."""
        return self.out(self.trunk(observation)).reshape(self.atoms, -1)

    def of_action(self, observation: Shaped[Array, "*obs"], action: Int[Array, ""]) -> Float[Array, " N"]:
        """Return θ(s, a)."""
        return self(observation)[:, action]
