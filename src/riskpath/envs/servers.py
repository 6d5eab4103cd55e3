"""Servers answer requests; more of them cost more, fewer let users wait, and once in three days requests peak.

Every second Poisson many requests arrive, 3 on average, and wait in one queue. A request keeps a server busy for an
exponential time with mean 1 s. Every minute one server can be added or removed, between 3 and 10: a new one starts to
work 2 minutes later, a busy one ends its request first. A peak raises the rate by 3 at once, and fades within about
5 minutes. No requests arrive after an hour; the episode ends when the last one is answered. Then the cost is paid: 2
for every second of a server and 1 for every second that a request waited, divided by 3600. This is the allocation of
servers of the public code of CeSoR (Greenberg et al., 2022).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Conditioned, Step
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key
from riskpath.validation import as_parameter, fields, require_counts, require_no_less_than_zero, require_positive

LEAST, MOST = 3, 10
"""The number of servers."""
MINUTE, UPLOAD, FADING = 60, 120.0, 300.0
"""Seconds between two decisions, until a new server works, and in which a peak falls to 1/e."""
KEEP, ADD, REMOVE = range(3)
"""The actions."""
TASKS = 12
"""The largest number of requests that a server can begin in a second; a billionth of its seconds would have more."""
PEAKS, MOST_PEAKS = 16, 4.0
"""The largest number of peaks in an episode, and the largest mean."""


class Farm(eqx.Module):
    """The state of an episode."""

    servers: Int[Array, ""]
    """How many servers there are; those with the lowest numbers."""
    loading: Float[Array, "10"]
    """Seconds until each one works."""
    leaving: Bool[Array, ""]
    """Whether the last one goes after its request."""
    work: Float[Array, "10"]
    """Seconds that each one's request still needs; −1 for a server without one."""
    queue: Int[Array, ""]
    """Requests that wait."""
    rate: Float[Array, ""]
    """Mean number of requests per second."""
    peaks: Int[Array, "16"]
    """The seconds in which peaks begin."""
    time: Int[Array, ""]
    """Seconds so far."""
    steps: Int[Array, ""]
    """Decisions so far."""
    cost: Float[Array, ""]
    """The cost so far."""


class Servers(Conditioned):
    """Add and remove servers while requests come in; observes the servers and the queue."""

    peaks_per_hour: float | Array = eqx.field(converter=as_parameter, default=1 / 72)
    """How many peaks begin in an hour on average."""
    rate: float | Array = eqx.field(converter=as_parameter, default=3.0)
    """The usual number of requests per second."""
    peak: float | Array = eqx.field(converter=as_parameter, default=3.0)
    """How many more there are at the beginning of a peak."""
    server_cost: float | Array = eqx.field(converter=as_parameter, default=2.0)
    """The cost of a server per second."""
    waiting_cost: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """The cost of a waiting request per second."""
    start_servers: int = eqx.field(static=True, default=4)
    """The number of servers at the start."""
    minutes: int = eqx.field(static=True, default=60)
    """How long requests arrive."""
    pays_at_end: bool = eqx.field(static=True, default=True)
    """Whether all costs are paid with the last step, as published, rather than as they arise."""

    def __check_init__(self):
        require_no_less_than_zero(**fields(self, "peak", "server_cost", "waiting_cost", "peaks_per_hour"))
        require_positive(rate=self.rate)
        require_counts(LEAST, start_servers=self.start_servers)
        require_counts(minutes=self.minutes)
        if self.start_servers > MOST:
            raise RiskpathError(f"start_servers must be at most {MOST}, got {self.start_servers}")
        if isinstance(self.peaks_per_hour, float) and self.peaks_per_hour * self.minutes > MOST_PEAKS * 60:
            limit = MOST_PEAKS * 60 / self.minutes
            raise RiskpathError(f"peaks_per_hour must be at most {limit:g}, got {self.peaks_per_hour:g}")

    @property
    def spec(self) -> EnvSpec:
        """Return the specification: the number of servers, one-hot, and the queue; three actions."""
        return EnvSpec(3, (MOST - LEAST + 2,), max_episode_steps=2 * self.minutes, conditions=1)

    @property
    def seconds(self) -> int:
        """Return how long requests arrive."""
        return MINUTE * self.minutes

    @property
    def usual(self) -> Float[Array, "1"]:
        return jnp.asarray(self.peaks_per_hour)[None] * (self.minutes / 60)

    def draw(self, means: Float[Array, "1"], *, key: Key) -> tuple[Int[Array, "16"], Float[Array, "1"]]:
        """Draw the seconds in which peaks begin, each with the same probability; return their number as well."""
        chance = jnp.clip(means, 0.0, MOST_PEAKS) / self.seconds
        pauses = jnp.log(1.0 - jax.random.uniform(key, (PEAKS,))) / jnp.log1p(-jnp.maximum(chance, 1e-12))
        peaks = jnp.cumsum(jnp.minimum(pauses, self.seconds).astype(jnp.int32) + 1) - 1
        return peaks, jnp.sum(peaks < self.seconds, dtype=jnp.float32)[None]

    def log_density(self, statistics: Float[Array, "1"], means: Float[Array, "1"]) -> Float[Array, ""]:
        (peaks,), (mean,) = statistics, jnp.clip(means, 0.0, MOST_PEAKS)
        return xlogy(peaks, mean / self.seconds) + xlog1py(self.seconds - peaks, -mean / self.seconds)

    def start(self, condition: Int[Array, "16"], *, key: Key) -> tuple[Float[Array, "9"], Farm]:
        """Return the first servers with an empty queue."""
        del key
        zero, nothing = jnp.zeros((), jnp.int32), jnp.zeros(())
        loading = jnp.where(jnp.arange(MOST) < self.start_servers, 0.0, UPLOAD)
        servers, idle, no = jnp.asarray(self.start_servers, jnp.int32), jnp.full((MOST,), -1.0), jnp.zeros((), bool)
        rate = jnp.asarray(self.rate, jnp.float32)
        farm = Farm(servers, loading, no, idle, zero, rate, condition, zero, zero, nothing)
        return self._observe(farm), farm

    def step(self, key: Key, state: Farm, action: Int[Array, ""]) -> Step:
        """Add or remove a server and work for a minute; `key` decides about arrivals and how long requests take."""
        arrival_key, length_key = jax.random.split(key)
        rates = self.rates(state)
        lengths = jax.random.exponential(length_key, (MINUTE, MOST, TASKS))
        return self.work(state, action, rates, jax.random.poisson(arrival_key, rates), lengths)

    def work(
        self,
        state: Farm,
        action: Int[Array, ""],
        rates: Float[Array, "60"],
        arrivals: Int[Array, "60"],
        lengths: Float[Array, "60 10 12"],
    ) -> Any:
        """Return the result of `step` for the requests of every second, and how long those of each server take."""
        decided = self._decide(state, action)

        def second(carry: Any, now: Any) -> Any:
            following = self._second(carry[0], *now)
            return jax.tree.map(lambda old, new: jnp.where(carry[1], old, new), carry, following), None

        start = decided, jnp.zeros((), bool)
        (farm, over), _ = jax.lax.scan(second, start, (rates, arrivals, lengths))
        farm = eqx.tree_at(lambda f: f.steps, farm, state.steps + 1)
        truncated = ~over & (farm.steps >= 2 * self.minutes)
        reward = jnp.where(over | truncated, -farm.cost, 0.0) if self.pays_at_end else state.cost - farm.cost
        return self._observe(farm), farm, reward, over, truncated

    def action_mask(self, state: Farm) -> Bool[Array, " A"]:
        """Return that every action is available; at a limit it has no effect."""
        return jnp.ones((3,), bool)

    def rates(self, farm: Farm) -> Float[Array, "60"]:
        """Return the mean number of requests of the next 60 seconds."""

        def later(rate: Float[Array, ""], time: Int[Array, ""]) -> Any:
            new = rate - rate / FADING + jnp.where(jnp.any(farm.peaks == time), self.peak, self.rate / FADING)
            return new, new

        return jax.lax.scan(later, farm.rate, farm.time + jnp.arange(MINUTE))[1]

    def _decide(self, farm: Farm, action: Int[Array, ""]) -> Farm:
        """Return the farm after a decision, which has no effect after the last arrivals."""
        last = farm.servers - 1
        going = farm.time < self.seconds
        adds = going & (action == ADD) & (farm.servers < MOST)
        removes = going & (action == REMOVE) & (farm.servers > LEAST)
        busy = farm.work[last] >= 0
        gone = removes & ~busy
        servers = farm.servers + (adds & ~farm.leaving).astype(jnp.int32) - gone.astype(jnp.int32)
        loading = jnp.where(gone & (jnp.arange(MOST) == last), UPLOAD, farm.loading)
        leaving = (farm.leaving & ~adds) | (removes & busy)
        places = lambda f: (f.servers, f.loading, f.leaving)
        return eqx.tree_at(places, farm, (servers, loading, leaving))

    def _second(
        self, farm: Farm, rate: Float[Array, ""], arrived: Int[Array, ""], lengths: Float[Array, "10 12"]
    ) -> tuple[Farm, Bool[Array, ""]]:
        """Return the farm a second later, and whether the episode is over.

        The first server takes requests as long as it can, then the next one.
        """
        number, going = jnp.arange(MOST), farm.time < self.seconds
        there, last = number < farm.servers, number == farm.servers - 1
        loading = jnp.where(there, jnp.maximum(farm.loading - 1.0, 0.0), farm.loading)
        queue = farm.queue + jnp.where(going, arrived, 0)
        leaves = farm.leaving & last
        free = jnp.maximum(farm.work, 0.0)  # when each server can begin its next request
        begins = free[:, None] + jnp.cumsum(lengths, axis=1) - lengths
        able = jnp.where(there & (loading <= 0) & ~leaves, jnp.sum(begins < 1.0, axis=1), 0)
        takes = jnp.clip(queue - (jnp.cumsum(able) - able), 0, able)
        taken = jnp.arange(TASKS)[None] < takes[:, None]
        ends = free + jnp.sum(jnp.where(taken, lengths, 0.0), axis=1)
        work = jnp.where(ends >= 1.0, ends - 1.0, -1.0)
        queue = queue - jnp.sum(takes)
        waited = queue.astype(jnp.float32) + jnp.sum(jnp.where(taken, begins, 0.0))
        gone = leaves & (work < 0)
        servers = farm.servers - jnp.any(gone).astype(jnp.int32)
        over = ~going & (queue == 0) & jnp.all(work < 0)
        paid = jnp.where(over, 0, servers).astype(jnp.float32)  # the last second is not paid for
        cost = self.waiting_cost * waited + self.server_cost * paid
        following = Farm(
            servers,
            jnp.where(gone, UPLOAD, loading),
            farm.leaving & ~jnp.any(gone),
            work,
            queue,
            jnp.where(going, rate, farm.rate),
            farm.peaks,
            farm.time + 1,
            farm.steps,
            farm.cost + cost / self.seconds,
        )
        return following, over

    def _observe(self, farm: Farm) -> Float[Array, "9"]:
        """Return the number of servers, one-hot, and the queue in units of 30 requests."""
        number = farm.servers == jnp.arange(LEAST, MOST + 1)
        return jnp.append(number.astype(jnp.float32), farm.queue.astype(jnp.float32) / 30)
