"""Return distributions as quantile functions: of a state, Z(s, ·; τ), and of a history, Z(h, ·; τ)."""

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import Network
from riskpath.errors import RiskpathError
from riskpath.nn.heads import Head, Layers, Table, Trunk, make_head
from riskpath.nn.history_encoder import History, Numbers, read_both
from riskpath.nn.losses import midpoints
from riskpath.risk.measures import RiskMeasure
from riskpath.types import EnvSpec, Key, Window


class MarkovCritic(eqx.Module):
    """Z(s, ·; τ)."""

    trunk: Trunk | None
    """None for a table: a state number is a row."""
    head: Head

    def __init__(self, network: Network, spec: EnvSpec, levels: int, *, key: Key):
        trunk_key, head_key = jax.random.split(key)
        if network.head == "table":
            if spec.num_states is None:
                raise RiskpathError("a table needs numbered states; use head='factored'")
            self.trunk, self.head = None, Table(spec.num_states, levels, spec.num_actions)
        else:
            self.trunk = Trunk(network.senses(spec, key=trunk_key), network.hidden, key=trunk_key)
            self.head = make_head(network.head, network.hidden[-1], spec.num_actions, key=head_key)

    def features(self, obs: Shaped[Array, "*obs"]) -> Shaped[Array, "*H"]:
        """ψ(s), or the row of s."""
        return obs if self.trunk is None else self.trunk(obs)

    def quantiles(self, obs: Shaped[Array, "*obs"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Z(s, a; τ) for all actions."""
        return self.head(self.features(obs), self.head.embed(taus))

    def risk(self, obs: Shaped[Array, "*obs"], risk: RiskMeasure, count: int) -> Float[Array, " A"]:
        """β[Z(s, a)] = ∫₀¹ Z(s, a; h⁻¹(τ)) dτ for all actions."""
        return self.head.mean(self.features(obs), self.head.embed(risk.distort(midpoints(count))))


class HistoryCritic(eqx.Module):
    """Z(h, ·; τ), or the law of the past return H(h; τ) with a single output."""

    history: History | Numbers
    layers: Layers | None
    head: Head
    rolling: bool = eqx.field(static=True)
    """Is a history only the latest part of an episode?"""

    def __init__(self, network: Network, spec: EnvSpec, length: int, levels: int, outputs: int, *, key: Key):
        history_key, layers_key, head_key = jax.random.split(key, 3)
        self.rolling = spec.max_episode_steps is None or length < spec.max_episode_steps
        if network.head == "table":
            self.history, self.layers = Numbers(spec, length), None
            self.head = Table(self.history.rows, levels, outputs)
        else:
            senses = network.senses(spec, key=history_key)
            self.history = History(network.history, senses, network.memory, key=history_key)
            self.layers = Layers(network.memory, network.hidden, key=layers_key)
            self.head = make_head(network.head, network.hidden[-1], outputs, key=head_key)

    def last(
        self, obs: Shaped[Array, "T *obs"], prev_action: Shaped[Array, "T *act"], valid: Bool[Array, " T"]
    ) -> Shaped[Array, "*H"]:
        """Features of the whole sequence, or its row."""
        return self._after(self.history(obs, prev_action, valid)[-1])

    def features(self, window: Window) -> tuple[Shaped[Array, "*H"], Shaped[Array, "*H"]]:
        """Features of h_t and of h_{t+1}."""
        now, following = read_both(self.history, window, self.rolling)
        return self._after(now), self._after(following)

    def _after(self, encoded: Shaped[Array, "*M"]) -> Shaped[Array, "*H"]:
        return encoded if self.layers is None else self.layers(encoded)
