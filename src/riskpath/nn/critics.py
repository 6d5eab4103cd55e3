"""Critics: quantile functions of the return of a state, Z(s, ·; τ), of a history, Z(h, ·; τ), and of an action."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.heads import FactoredHead, Head, TableHead, make_head
from riskpath.nn.history_encoder import HistoryEncoder, HistoryIndex, encode_both
from riskpath.nn.losses import midpoints
from riskpath.nn.mlp import MLP
from riskpath.nn.network import Network
from riskpath.nn.observation_encoder import ObservationEncoder
from riskpath.risk.measures import DistortionMeasure
from riskpath.types import EnvSpec, Key, Window


class Trunk(eqx.Module):
    """ψ(s), the features of one observation."""

    encoder: ObservationEncoder
    mlp: MLP

    def __call__(self, observation: Shaped[Array, "*obs"]) -> Float[Array, " H"]:
        """Return ψ(s)."""
        return self.mlp(self.encoder(observation))


class MarkovCritic(eqx.Module):
    """Z(s, ·; τ) for discrete actions."""

    trunk: Trunk | None
    """None for a table, whose rows are the state numbers."""
    head: Head
    columns: int = eqx.field(static=True)
    """Number of actions, of all heads together."""

    def __init__(self, network: Network, spec: EnvSpec, levels: int, *, key: Key):
        self.columns = spec.num_actions
        mlp_key, head_key, encoder_key = jax.random.split(key, 3)
        if network.head == "table":
            if spec.num_states is None:
                raise RiskpathError("a table needs discrete states; use head='factored'")
            self.trunk, self.head = None, TableHead(spec.num_states, levels, spec.num_actions)
        else:
            encoder = network.encoder(spec, key=encoder_key)
            self.trunk = Trunk(encoder, MLP(encoder.size, network.hidden, key=mlp_key))
            self.head = make_head(network.head, network.hidden[-1], spec.num_actions, key=head_key)

    def features(self, observation: Shaped[Array, "*obs"]) -> Shaped[Array, "*H"]:
        """Return ψ(s), or the row of s in a table."""
        return observation if self.trunk is None else self.trunk(observation)

    def quantiles(self, observation: Shaped[Array, "*obs"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return Z(s, a; τ) for all actions."""
        return self.head(self.features(observation), taus)

    def of_action(
        self, observation: Shaped[Array, "*obs"], taus: Float[Array, " N"], action: Int[Array, "*C"]
    ) -> Float[Array, " N"]:
        """Return Z(s, a; τ) for one action."""
        return self.head.of_joint(self.features(observation), taus, action, self.columns)

    def risk(self, observation: Shaped[Array, "*obs"], risk: DistortionMeasure, levels: int) -> Float[Array, " A"]:
        """Return β[Z(s, a)] = ∫₀¹ Z(s, a; h⁻¹(τ)) dτ for all actions."""
        return self.head.mean(self.features(observation), risk.distort(midpoints(levels)))


class AugmentedCritic(eqx.Module):
    """Z(x, s, c, ·; τ) for discrete actions: the return to go, given the return so far, s, and the discount c = γᵗ."""

    encoder: ObservationEncoder
    mlp: MLP
    head: Head

    def __init__(self, network: Network, spec: EnvSpec, *, key: Key):
        if network.head == "table":
            raise RiskpathError("a table has no rows for the return so far; use head='factored'")
        encoder_key, mlp_key, head_key = jax.random.split(key, 3)
        self.encoder = network.encoder(spec, key=encoder_key)
        self.mlp = MLP(self.encoder.size + 2, network.hidden, key=mlp_key)
        self.head = make_head(network.head, network.hidden[-1], spec.num_actions, key=head_key)

    def features(
        self, observation: Shaped[Array, "*obs"], s: Float[Array, ""], c: Float[Array, ""]
    ) -> Float[Array, " H"]:
        """Return the features of (x, s, c)."""
        return self.mlp(jnp.concatenate([self.encoder(observation), jnp.stack([s, c])]))

    def quantiles(self, features: Float[Array, " H"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return Z(x, s, c, ·; τ) from the features of (x, s, c)."""
        return self.head(features, taus)

    def of_action(
        self, features: Float[Array, " H"], taus: Float[Array, " N"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return Z(x, s, c, a; τ) for one action."""
        return self.head.of_action(features, taus, action)


class HistoryCritic(eqx.Module):
    """Z(h, ·; τ) for discrete actions; with one output, the distribution of the past return H(h; τ)."""

    history: HistoryEncoder | HistoryIndex
    mlp: MLP | None
    head: Head
    rolling: bool = eqx.field(static=True)
    """Whether a history is only the latest part of an episode."""
    columns: int = eqx.field(static=True)
    """Number of outputs."""

    def __init__(self, network: Network, spec: EnvSpec, length: int, levels: int, outputs: int, *, key: Key):
        self.columns = outputs
        history_key, mlp_key, head_key, encoder_key = jax.random.split(key, 4)
        self.rolling = spec.max_episode_steps is None or length < spec.max_episode_steps
        if network.head == "table":
            self.history, self.mlp = HistoryIndex(spec, length), None
            self.head = TableHead(self.history.rows, levels, outputs)
        else:
            encoder = network.encoder(spec, key=encoder_key)
            self.history = network.history_encoder(encoder, key=history_key)
            self.mlp = MLP(network.history_size, network.hidden, key=mlp_key)
            self.head = make_head(network.head, network.hidden[-1], outputs, key=head_key)

    def last(
        self, observation: Shaped[Array, "T *obs"], prev_action: Shaped[Array, "T *act"], valid: Bool[Array, " T"]
    ) -> Shaped[Array, "*H"]:
        """Return the features of a whole history, or its row in a table."""
        return self._features(self.history(observation, prev_action, valid)[-1])

    def features(self, window: Window) -> tuple[Shaped[Array, "*H"], Shaped[Array, "*H"]]:
        """Return the features of h_t and of h_{t+1}."""
        now, following = encode_both(self.history, window, self.rolling)
        return self._features(now), self._features(following)

    def quantiles(self, features: Shaped[Array, "*H"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return Z(h, ·; τ) from the features of h."""
        return self.head(features, taus)

    def of_action(
        self, features: Shaped[Array, "*H"], taus: Float[Array, " N"], action: Int[Array, "*C"]
    ) -> Float[Array, " N"]:
        """Return Z(h, a; τ) for one action, from the features of h."""
        return self.head.of_joint(features, taus, action, self.columns)

    def _features(self, encoded: Shaped[Array, "*M"]) -> Shaped[Array, "*H"]:
        return encoded if self.mlp is None else self.mlp(encoded)


class ActionCritic(eqx.Module):
    """Z(x, a; τ) for continuous actions and features x of a state or of a history."""

    mlp: MLP
    head: FactoredHead

    def __init__(self, inputs: int, hidden: tuple[int, ...], *, key: Key):
        mlp_key, head_key = jax.random.split(key)
        self.mlp = MLP(inputs, hidden, key=mlp_key)
        self.head = FactoredHead(hidden[-1], 1, key=head_key)

    def quantiles(
        self, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """Return Z(x, a; τ)."""
        return self.head(self.mlp(jnp.concatenate([x, action])), taus)[:, 0]

    def mean(self, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " N"]) -> Float[Array, ""]:
        """Return the mean over levels; with distorted levels this is β."""
        return self.head.mean(self.mlp(jnp.concatenate([x, action])), taus)[0]


Twins = tuple[ActionCritic, ActionCritic]


def make_twins(inputs: int, hidden: tuple[int, ...], *, key: Key) -> Twins:
    """Make two critics."""
    first, second = jax.random.split(key)
    return ActionCritic(inputs, hidden, key=first), ActionCritic(inputs, hidden, key=second)


class Actor(eqx.Module):
    """π(x) = tanh(u(x))."""

    mlp: MLP
    out: eqx.nn.Linear

    def __init__(self, inputs: int, hidden: tuple[int, ...], actions: int, *, key: Key):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(inputs, hidden, key=mlp_key)
        self.out = eqx.nn.Linear(hidden[-1], actions, key=out_key)

    def raw(self, x: Float[Array, " D"]) -> Float[Array, " C"]:
        """Return u(x)."""
        return self.out(self.mlp(x))

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " C"]:
        """Return the action."""
        return jnp.tanh(self.raw(x))
