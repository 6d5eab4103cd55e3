"""A car follows another one as closely as it can; the leader brakes, turns, and now and then brakes hard.

The leader makes 20 manoeuvres of 1.5 s, drawn anew each time; below 20 m/s it always accelerates. Every 0.5 s the
follower brakes, accelerates or turns the wheel. It sees the leader as it was 0.7 s ago. Every 0.1 s costs the more, the
worse the follower keeps distance, speed and lane. If it leaves the road or gets 10 m ahead, the episode ends, and the
costs of the remaining time are paid at once. This is the driving game of the public code of CeSoR (Greenberg et al.,
2022), without oil on the road. Positions here are relative to a car that drives at 40 m/s.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Conditioned, Step
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key
from riskpath.validation import as_parameter, require_share

DT, PER_ACTION, PER_MANOEUVRE, MANOEUVRES = 0.1, 5, 15, 20
"""Seconds of a small step, small steps of an action and of a manoeuvre, manoeuvres of an episode."""
STEPS = PER_MANOEUVRE * MANOEUVRES
DELAY = 7
"""Small steps until the follower sees what the leader does."""
SPEED, LANE = 40.0, 2.0
"""The usual speed, and the y of the leader's lane."""
LENGTH, BEHIND, FAR_OFF = 3.476, -2.5, 10.0
"""The length of a car, the ideal lead over the leader, and where an episode ends, in metres."""
ACTIONS = ((-6.0, 0.0), (0.0, -0.03486), (0.0, 0.0), (0.0, 0.03486), (4.0, 0.0))
"""Acceleration and angle of the wheel of every action: brake, left, nothing, right, accelerate."""
LEADER = ("nothing", "accelerate", "brake", "brake hard", "turn", "turn back")
"""The leader's manoeuvres; the last one is the turn of a leader that has turned already."""
_SHAPE = np.array([t / 7.5 if t < 7.5 else 2 - t / 7.5 for t in range(PER_MANOEUVRE)])
_BEND = np.array([44.117, 25.21, 9.211, -3.878, -14.05, -21.33, -25.69, -27.14])
_BEND = 4 / 3 * np.concatenate([_BEND, _BEND[-2::-1]])
_NONE = np.zeros(PER_MANOEUVRE)
FORWARD = np.stack([_NONE, _SHAPE, -2 * _SHAPE, -6 * _SHAPE, _NONE, _NONE])
"""The leader's acceleration at every small step of a manoeuvre."""
SIDEWAYS = np.stack([*[_NONE] * 4, -_BEND, _BEND])
"""The jerk of its movement across the road."""
GAIN = DT * FORWARD.sum(axis=1)
"""How much faster the leader is after a manoeuvre."""
LOG2 = float(np.log(2.0))


class Drive(eqx.Module):
    """The state of an episode."""

    leader: Float[Array, "301 3"]
    """Position, speed and y of the leader at every small step, past and future."""
    car: Float[Array, "4"]
    """Position, y, speed and heading of the follower."""
    acceleration: Float[Array, ""]
    """Its acceleration so far."""
    time: Int[Array, ""]


class Driving(Conditioned):
    """Follow a car closely and safely; observes distance, speed, acceleration and heading."""

    p_nothing: float | Array = eqx.field(converter=as_parameter, default=0.35)
    """How likely it is that the leader does nothing in a manoeuvre, …"""
    p_accelerate: float | Array = eqx.field(converter=as_parameter, default=0.3)
    """… accelerates by 0.75 m/s, …"""
    p_brake: float | Array = eqx.field(converter=as_parameter, default=0.248)
    """… brakes by 1.5 m/s, …"""
    p_brake_hard: float | Array = eqx.field(converter=as_parameter, default=0.002)
    """… or by 4.5 m/s; otherwise it changes the lane."""

    def __check_init__(self):
        given = {name: getattr(self, name) for name in ("p_nothing", "p_accelerate", "p_brake", "p_brake_hard")}
        require_share(**given)
        if all(isinstance(p, float) for p in given.values()) and sum(given.values()) > 1 + 1e-9:
            raise RiskpathError(f"{', '.join(given)} must not exceed 1 together, got {sum(given.values()):g}")

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(len(ACTIONS), (5,), max_episode_steps=STEPS // PER_ACTION, conditions=5)

    @property
    def usual(self) -> Float[Array, "5"]:
        p = jnp.stack([jnp.asarray(x) for x in (self.p_nothing, self.p_accelerate, self.p_brake, self.p_brake_hard)])
        return jnp.append(p, jnp.maximum(1.0 - jnp.sum(p), 0.0))

    def draw(self, means: Float[Array, "5"], *, key: Key) -> tuple[Int[Array, "20"], Float[Array, "5"]]:
        """Draw the leader's manoeuvres; return the share of each kind as well."""
        manoeuvres = jax.random.categorical(key, jnp.log(means), shape=(MANOEUVRES,))
        return manoeuvres, jnp.bincount(manoeuvres, length=5).astype(float) / MANOEUVRES

    def log_density(self, statistics: Float[Array, "5"], means: Float[Array, "5"]) -> Float[Array, ""]:
        """Return the logarithm of the probability of the manoeuvres."""
        return MANOEUVRES * jnp.sum(xlogy(statistics, means))

    def start(self, condition: Int[Array, "20"], *, key: Key) -> tuple[Float[Array, "5"], Drive]:
        """Place the follower behind the leader, in a lane or between lanes."""
        leader_key, distance_key, speed_key, lane_key, side_key = jax.random.split(key, 5)
        distance = 5 * LENGTH + 10 * jax.random.exponential(distance_key)
        faster = 3 * jax.random.normal(speed_key)
        side = jnp.where(jax.random.uniform(side_key) < 0.5, -1.0, 1.0)
        between = jax.random.uniform(lane_key) < 0.2
        car = jnp.stack(
            [
                -distance,
                jnp.where(between, 0.0, LANE * side),
                SPEED + faster,
                jnp.where(between, 0.2007 * SPEED / (SPEED + faster) * side, 0.0),
            ]
        )
        state = self.begin(condition, SPEED + 3 * jax.random.normal(leader_key), car)
        return self.observe(state), state

    def begin(self, manoeuvres: Int[Array, "20"], speed: Float[Array, ""], car: Float[Array, "4"]) -> Drive:
        """Return the start of an episode with these manoeuvres and first speed of the leader."""
        leader = leader_path(manoeuvres, speed)
        return Drive(leader, car, jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: Drive, action: Int[Array, ""]) -> Step:
        """Drive for half a second; nothing is random."""
        acceleration, wheel = jnp.asarray(ACTIONS)[action]

        def small(carry: Any, jerk: Float[Array, ""]) -> Any:
            car, time, _, total, lost = carry
            moved, row = _drive(car, acceleration, wheel), state.leader[time + 1]
            now_lost = (jnp.abs(moved[1]) > FAR_OFF) | (moved[0] - row[0] > FAR_OFF)
            following = moved, time + 1, jerk, total + jnp.where(now_lost, 0.0, _cost(moved, row, jerk)), now_lost
            return jax.tree.map(lambda old, new: jnp.where(lost, old, new), carry, following), None

        jerks = jnp.where(jnp.arange(PER_ACTION) == 0, jnp.abs(acceleration - state.acceleration), 0.0)
        carry = state.car, state.time, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), bool)
        (car, time, jerk, total, lost), _ = jax.lax.scan(small, carry, jerks)
        # Who is lost pays for the rest of the episode while standing still.
        times = jnp.arange(STEPS + 1, dtype=jnp.int32)
        leader = state.leader.at[:, 0].add(SPEED * DT * (times - time).astype(float))
        rest = jnp.where((times >= time) & (times < STEPS), _cost(car, leader, jerk), 0.0)
        total = total + jnp.where(lost, jnp.sum(rest), 0.0)
        following = Drive(state.leader, car, acceleration, time)
        return self.observe(following), following, -total, lost, ~lost & (time >= STEPS)

    def observe(self, state: Drive) -> Float[Array, "5"]:
        """Return the lead over the leader as it was seen, the differences of speed and y, acceleration and heading."""
        x, speed, y = state.leader[jnp.maximum(state.time - DELAY, 0)]
        # In the frame that drives at 40 m/s a place that was seen earlier lies farther back.
        x = x - SPEED * DT * jnp.minimum(state.time, DELAY).astype(float)
        ahead, across, own, heading = state.car
        apart = own * jnp.cos(heading) - speed
        return jnp.stack([(ahead - x) / 5, apart / 2, state.acceleration / 2, (across - y) / 2, 10 * heading])

    def action_mask(self, state: Drive) -> Bool[Array, " A"]:
        return jnp.ones((len(ACTIONS),), bool)


def leader_path(manoeuvres: Int[Array, "20"], speed: Float[Array, ""]) -> Float[Array, "301 3"]:
    """Return position, speed and y of the leader at every small step."""

    def choose(carry: Any, wanted: Int[Array, ""]) -> Any:
        speed, turned = carry
        turns = wanted == 4
        made = jnp.where(speed < SPEED / 2, 1, jnp.where(turns & turned, 5, wanted))
        return (speed + jnp.asarray(GAIN, float)[made], turned ^ (made >= 4)), made

    _, made = jax.lax.scan(choose, (speed, jnp.zeros((), bool)), manoeuvres)
    ahead, aside = (jnp.asarray(table, float)[made] for table in (FORWARD, SIDEWAYS))
    bend = DT * _before(aside, 1)  # the acceleration across the road is 0 again after every manoeuvre
    ahead, aside, bend = (x.reshape(STEPS) for x in (ahead, aside, bend))
    relative = (speed - SPEED) + DT * _before(ahead, 0)
    drift = _before(DT * bend + DT**2 / 2 * aside, 0)
    x = _after(DT * relative + DT**2 / 2 * ahead)
    y = LANE + _after(DT * drift + DT**2 / 2 * bend + DT**3 / 6 * aside)
    last = relative[-1] + DT * ahead[-1]
    return jnp.stack([x, SPEED + jnp.append(relative, last), y], axis=1)


def _after(changes: Float[Array, " T"]) -> Float[Array, " T+1"]:
    """Return 0 and the sums of the first changes."""
    return jnp.concatenate([jnp.zeros((1,)), jnp.cumsum(changes)])


def _before(changes: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Return the sum of the changes before each one."""
    return jnp.cumsum(changes, axis=axis) - changes


def _drive(car: Float[Array, "4"], acceleration: Float[Array, ""], wheel: Float[Array, ""]) -> Float[Array, "4"]:
    """Return the car after a small step of the bicycle model."""
    x, y, speed, heading = car
    middle = speed + DT / 2 * acceleration
    turn = middle / LENGTH * jnp.tan(wheel * SPEED**2 / jnp.maximum(speed**2, 1e-9))
    between = heading - DT / 2 * turn
    forward = DT * (middle * jnp.cos(between) - SPEED)
    return jnp.stack([x + forward, y + DT * middle * jnp.sin(between), speed + DT * acceleration, heading - DT * turn])


def _cost(car: Float[Array, "4"], leader: Float[Array, "*T 3"], jerk: Float[Array, ""]) -> Float[Array, "*T"]:
    """Return the cost of a small step: collision, distance, speed, smoothness, lane and road."""
    x, y, speed, heading = car
    lead, across = x - leader[..., 0], jnp.abs(y - leader[..., 2])
    apart = jnp.abs(speed * jnp.cos(heading) - leader[..., 1])
    collision = jnp.where((jnp.abs(lead) < LENGTH) & (across < LENGTH / 2), 5.0, 0.0)
    ahead = jnp.where(lead > BEHIND, _grows(0.5 * (lead - BEHIND)) + 1.0, 0.0)
    behind = jnp.where(lead < BEHIND, _grows(0.05 * (BEHIND - lead)), 0.0)
    off = jnp.where(jnp.abs(y) > LANE, _grows(0.5 * (jnp.abs(y) - LANE)), 0.0)
    return collision + ahead + behind + _grows(0.1 * apart) + 0.5 * jerk + _grows(across) + off


def _grows(x: Float[Array, "*T"]) -> Float[Array, "*T"]:
    """Return log((1 + eˣ)/2), which is about linear."""
    return jax.nn.softplus(x) - LOG2
