"""Stochastic policies: networks that return a distribution over actions, and the distributions."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.nn.context_network import ContextNetwork
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.types import EnvSpec, Key

UNAVAILABLE = -1e9
"""The logit of an action that is not available: its probability is 0, and its gradient, too."""
SMALL = 0.01
"""The factor on a policy's last layer at the start, so that the first actions are nearly uniform."""

LOG_STD = (-5.0, 1.0)
"""Range of the logarithm of the deviation before tanh."""


class Categorical(eqx.Module):
    """Probabilities of the available actions, of each head if there are several."""

    logits: Float[Array, "*H A"]

    def best(self) -> Int[Array, "*H"]:
        """Return the likeliest action."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def sample(self, *, key: Key) -> Int[Array, "*H"]:
        """Draw an action."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "*H"]) -> Float[Array, ""]:
        """Return the logarithm of an action's probability."""
        chosen = jax.nn.one_hot(action, self.logits.shape[-1])
        return jnp.sum(chosen * jax.nn.log_softmax(self.logits))

    def entropy(self) -> Float[Array, ""]:
        """Return −Σ p log p, summed over heads."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs)


class Gaussian(eqx.Module):
    """Independent normal distributions of all entries of an action."""

    mean: Float[Array, " C"]
    log_std: Float[Array, " C"]

    def best(self) -> Float[Array, " C"]:
        """Return the mean."""
        return self.mean

    def sample(self, *, key: Key) -> Float[Array, " C"]:
        """Draw an action, differentiably."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: Float[Array, " C"]) -> Float[Array, ""]:
        """Return the logarithm of an action's density."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2.0 * math.pi))

    def entropy(self) -> Float[Array, ""]:
        """Return the differential entropy."""
        return jnp.sum(self.log_std + 0.5 * math.log(2.0 * math.pi * math.e))


def orthogonal(layer: eqx.nn.Linear, gain: float, *, key: Key) -> eqx.nn.Linear:
    """Return a layer with an orthogonal weight matrix, times `gain`, and no bias: the usual start of PPO's networks."""
    weight = jax.nn.initializers.orthogonal(gain)(key, layer.weight.shape, jnp.float32)
    assert layer.bias is not None
    return eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros_like(layer.bias)))


class FeatureNetwork(eqx.Module):
    """An encoder, tanh layers, and a linear layer; for policies and values alike."""

    encoder: ObservationEncoder
    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, network: Network, spec: EnvSpec, outputs: int, gain: float = 1.0, *, key: Key):
        """Make a network; `gain` scales the weights of the last layer."""
        encoder_key, mlp_key, out_key = jax.random.split(key, 3)
        self.encoder = network.encoder(spec, key=encoder_key)
        mlp = MLP(self.encoder.size, network.hidden, jnp.tanh, key=mlp_key)
        keys = jax.random.split(mlp_key, len(mlp.layers))
        layers = [orthogonal(layer, 2**0.5, key=one) for layer, one in zip(mlp.layers, keys, strict=True)]
        self.mlp = eqx.tree_at(lambda m: m.layers, mlp, layers)
        self.out = orthogonal(eqx.nn.Linear(network.hidden[-1], outputs, key=out_key), gain, key=out_key)

    def __call__(self, observation: Shaped[Array, "*obs"]) -> Float[Array, " N"]:
        """Return the outputs for one observation."""
        return self.out(self.mlp(self.encoder(observation)))


class Policy(eqx.Module):
    """π(a | s): logits of discrete actions, or the mean of continuous ones, whose deviation is the same everywhere."""

    network: FeatureNetwork
    log_std: Float[Array, " C"] | None
    """None if actions are discrete."""

    def __init__(self, network: Network, spec: EnvSpec, log_std: float | Array, *, key: Key):
        self.network = FeatureNetwork(network, spec, spec.num_actions or spec.action_size, SMALL, key=key)
        self.log_std = jnp.full((spec.action_size,), log_std) if spec.action_size else None

    def __call__(self, observation: Shaped[Array, "*obs"], mask: Bool[Array, "*M"]) -> Categorical | Gaussian:
        """Return the distribution over available actions."""
        return _distribution(self.network(observation), self.log_std, mask)


def _distribution(
    out: Float[Array, " N"], log_std: Float[Array, " C"] | None, mask: Bool[Array, "*M"]
) -> Categorical | Gaussian:
    """Return the distribution over available actions from the outputs of a network."""
    if log_std is not None and len(log_std):
        return Gaussian(out, log_std)
    return Categorical(jnp.where(mask, out.reshape(mask.shape), UNAVAILABLE))


class Seen(eqx.Module):
    """What a network sees in addition to the observation; units may change before a stored step is used."""

    features: Float[Array, " F"]
    """The encoded context."""
    clock: Float[Array, ""]
    """The elapsed fraction of the episode's time."""


class ContextPolicy(eqx.Module):
    """π(a | s, x) and V(s, x), which see a context x beside the observation, and what follows from them."""

    policy: ContextNetwork
    critic: ContextNetwork
    """One or more values, in units."""
    log_std: Float[Array, " C"]
    """Logarithm of the standard deviation of continuous actions."""
    plan: Any
    """What an agent derives from the networks or the returns; gradients do not change it."""
    played: Any
    """What an agent keeps of the returns of its training episodes."""

    def __init__(
        self,
        network: Network,
        spec: EnvSpec,
        context: int,
        log_std: float | Array,
        plan: Any = (),
        values: int = 1,
        played: Any = (),
        *,
        key: Key,
    ):
        policy_key, critic_key = jax.random.split(key)
        outputs = spec.num_actions or spec.action_size
        policy = ContextNetwork(network, spec, 0, context, outputs, key=policy_key)
        self.policy = eqx.tree_at(lambda n: n.out, policy, jax.tree.map(lambda x: SMALL * x, policy.out))
        self.critic = ContextNetwork(network, spec, 0, context, values, key=critic_key)
        self.log_std, self.plan, self.played = jnp.full((spec.action_size,), log_std), plan, played

    def of(
        self, observation: Shaped[Array, "*obs"], mask: Bool[Array, "*M"], seen: Seen
    ) -> tuple[Categorical | Gaussian, Float[Array, "*V"]]:
        """Return π(· | s, x) and V(s, x), a vector if there are several values."""
        out, values = (z(z.inputs(observation, seen.clock), seen.features) for z in (self.policy, self.critic))
        return _distribution(out, self.log_std, mask), values[0] if len(values) == 1 else values


class SquashedGaussianActor(eqx.Module):
    """π(a | x): a = tanh(u) with u normal, whose mean and deviation both depend on x."""

    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, inputs: int, hidden: tuple[int, ...], actions: int, *, key: Key):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(inputs, hidden, key=mlp_key)
        self.out = eqx.nn.Linear(hidden[-1], 2 * actions, key=out_key)

    def __call__(self, x: Float[Array, " D"]) -> Gaussian:
        """Return the distribution of u."""
        mean, log_std = jnp.split(self.out(self.mlp(x)), 2)
        low, high = LOG_STD
        return Gaussian(mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1.0))

    def best(self, x: Float[Array, " D"]) -> Float[Array, " C"]:
        """Return tanh of the mean."""
        return jnp.tanh(self(x).mean)

    def sample(self, x: Float[Array, " D"], *, key: Key) -> tuple[Float[Array, " C"], Float[Array, ""]]:
        """Draw an action, differentiably, and return it with the logarithm of its density."""
        normal = self(x)
        u = normal.sample(key=key)
        # log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)), without loss of digits where tanh is flat.
        slope = jnp.sum(2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u)))
        return jnp.tanh(u), normal.log_prob(u) - slope
