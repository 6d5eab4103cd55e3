"""The trading problems against independent NumPy transitions and rewards, and against the grid problem they make."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import as_arrays
from riskpath.envs.market import Market
from riskpath.mdp.grid.axes import price_axis
from riskpath.mdp.grid.detect import form_of
from riskpath.mdp.grid.form import Form
from riskpath.mdp.grid.market import bracket_mean
from riskpath.mdp.grid.market_policy import BROADCASTING

KEY = jax.random.key(0)


def at(*state: float, time: int = 0) -> Market:
    return Market(tuple(jnp.float32(x) for x in state), jnp.int32(time))


@eqx.filter_jit
def step_many(env: Any, market: Market, action: Any) -> Any:
    return jax.vmap(env.step, (0, None, None))(jax.random.split(KEY, 20_000), market, action)


def steps(env: Any, market: Market, action: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations, rewards and terminations of one step with many keys."""
    observation, _, reward, terminated, truncated = step_many(env, market, action)
    assert not truncated.any()
    return np.asarray(observation, np.float64), np.asarray(reward, np.float64), np.asarray(terminated)


@pytest.mark.parametrize("time", [0, 8, 9])
@pytest.mark.parametrize(("action", "trade"), [(0, -2.0), (10, 0.0), (13, 0.6), (20, 2.0)])
@pytest.mark.parametrize("continuous", [False, True])
def test_trading_a_mean_reverting_price(time, action, trade, continuous):
    env = rp.MeanReversionTrading(continuous=continuous)
    chosen = jnp.array([trade / 2]) if continuous else jnp.int32(action)
    seen, reward, terminated = steps(env, at(1.4, -0.4, time=time), chosen)
    after, held = seen[:, 0], -0.4 + trade
    decay = np.exp(-0.2)
    assert after.mean() == pytest.approx(1 + 0.4 * decay, abs=0.01)
    assert after.std() == pytest.approx(np.sqrt((1 - decay**2) / 4), rel=0.02)
    np.testing.assert_allclose(seen[:, 1:], np.broadcast_to([held, time + 1], (len(seen), 2)), rtol=1e-5)
    wanted = -1.4 * trade - 0.005 * trade**2 + (held * after - 0.5 * held**2 if time == 9 else 0 * after)
    np.testing.assert_allclose(reward, wanted, atol=1e-5)
    assert terminated.all() == terminated.any() == (time == 9)


@pytest.mark.parametrize("price", [0.7, 1.3])
@pytest.mark.parametrize("time", [0, 8, 9])
@pytest.mark.parametrize("action", [0, 1])
def test_holding_and_exercising_a_put(price, time, action):
    seen, reward, terminated = steps(rp.AmericanPut(), at(price, time=time), jnp.int32(action))
    exercised = action == 1 or time == 9
    np.testing.assert_allclose(reward, max(0, 1 - price) if exercised else 0, atol=1e-6)
    assert terminated.all() == terminated.any() == exercised
    growth = np.log(seen[:, 0] / price)
    if exercised:
        np.testing.assert_allclose(growth, 0, atol=1e-6)
    else:
        assert growth.mean() == pytest.approx((-0.3 - 0.045) * 0.1, abs=0.003)
        assert growth.std() == pytest.approx(0.3 * 0.1**0.5, rel=0.02)
    assert (seen[:, 1] == time + 1).all()


@pytest.mark.parametrize("time", [0, 18, 19])
@pytest.mark.parametrize(("action", "hedge"), [(0, 0.0), (7, 0.35), (20, 1.0)])
@pytest.mark.parametrize("continuous", [False, True])
def test_hedging_an_option(time, action, hedge, continuous):
    env = rp.OptionHedging(continuous=continuous)
    chosen = jnp.array([2 * hedge - 1]) if continuous else jnp.int32(action)
    seen, reward, terminated = steps(env, at(1.02, 0.4, time=time), chosen)
    after = seen[:, 0]
    growth = np.log(after / 1.02)
    assert growth.mean() == pytest.approx(-0.02 / 250, abs=0.0004)
    assert growth.std() == pytest.approx(0.2 / 250**0.5, rel=0.02)
    np.testing.assert_allclose(seen[:, 1:], np.broadcast_to([hedge, time + 1], (len(seen), 2)), rtol=1e-5)
    payoff = np.maximum(after - 1, 0) * (time == 19)
    np.testing.assert_allclose(reward, hedge * (after - 1.02) - 1e-4 * 1.02 * abs(hedge - 0.4) - payoff, atol=1e-6)
    assert terminated.all() == terminated.any() == (time == 19)


def test_the_option_price_is_that_of_black_and_scholes():
    env = rp.OptionHedging()
    assert env.option_price(0, jnp.float32(1.0)) == pytest.approx(0.022562, abs=1e-5)
    draws = np.random.default_rng(0).normal(size=400_000)
    paid = np.maximum(1.01 * np.exp(-0.0002 + 0.02 * draws) - 1, 0)  # σ²Δt = 0.0004 for ten days
    env = rp.OptionHedging(sigma=0.1)
    assert env.option_price(10, jnp.float32(1.01)) == pytest.approx(paid.mean(), abs=1e-4)


MARKETS = [
    (rp.MeanReversionTrading(), 21, 0, 3),
    (rp.MeanReversionTrading(continuous=True), 0, 1, 3),
    (rp.AmericanPut(), 2, 0, 2),
    (rp.OptionHedging(), 21, 0, 3),
    (rp.OptionHedging(continuous=True), 0, 1, 3),
]


@pytest.mark.parametrize(("env", "actions", "size", "seen"), MARKETS)
def test_the_specification_fits_the_observations(env, actions, size, seen):
    spec = env.spec
    assert (spec.num_actions, spec.action_size, spec.observation_shape) == (actions, size, (seen,))
    assert (spec.max_episode_steps, env.action_mask(None).shape) == (env.steps, (actions,))
    observation, _ = env.reset(KEY)
    low, high = np.array(spec.observation_bounds).T
    assert ((low <= observation) & (observation <= high)).all()


@pytest.mark.parametrize(("env", "actions", "size", "seen"), MARKETS)
def test_an_episode_of_the_environment_pays_what_the_grid_problem_pays(env, actions, size, seen):
    problem = env.grid_problem(0.1)

    @jax.jit
    def both(key, market, label, state, action):
        time = market.time
        _, market, reward, terminated, _ = env.step(key, market, label)
        post, paid, ends = problem.after_decision(time, state, action)
        state, gained = problem.after_move(time, post, jax.random.normal(key))
        return market, state, reward, jnp.where(ends, paid, paid + gained), terminated

    rng, total, expected = np.random.default_rng(1), 0.0, problem.start_potential
    _, market = env.reset(KEY)
    state = market.state
    assert (market.time, len(problem.axes)) == (0, seen - 1)
    for time, key in enumerate(jax.random.split(KEY, env.steps)):
        number = int(rng.integers(len(problem.actions)))
        number = 0 if actions == 2 else number
        label = jnp.asarray(problem.label(number), jnp.float32 if size else jnp.int32)
        market, state, reward, paid, terminated = both(key, market, label, state, problem.actions[number])
        total, expected = total + float(reward), expected + float(paid)
        assert bool(terminated) == (time == env.steps - 1)
    assert total == pytest.approx(expected, abs=1e-4)


def two_trades(start: float, penalty: float) -> float:
    """Return the best mean of two trades: all first ones × prices × second ones."""
    trades, (noise, probs) = np.linspace(-2, 2, 5), np.polynomial.hermite_e.hermegauss(64)
    decay, first = np.exp(-0.2), trades[:, None, None]
    price = (1 + (start - 1) * decay + np.sqrt((1 - decay**2) / 4) * noise)[:, None]
    held = first + trades
    then = held * (1 + (price - 1) * decay) - penalty * held**2 - price * trades - 0.005 * trades**2
    return float((-start * first[:, 0, 0] - 0.005 * trades**2 + then.max(axis=2) @ (probs / probs.sum())).max())


@pytest.mark.parametrize(
    ("env", "value", "slack"),
    [
        (rp.MeanReversionTrading(steps=2, trades=5, start_price=1.6, penalty=0.05), two_trades(1.6, 0.05), 0.005),
        pytest.param(rp.OptionHedging(steps=2, hedges=5), -0.00713, 0.0006, marks=pytest.mark.long),
    ],
)
def test_the_mean_of_the_grid_problem(env, value, slack):
    form = form_of(env.grid_problem())
    assert isinstance(form, Form)
    with BROADCASTING():
        found = bracket_mean(form, 2048, 0, bound=len(form.lattice) > 10, prices=price_axis(form, 0.5))
    assert found.lower == pytest.approx(value, abs=slack)
    if found.upper is not None:  # trading, whose optimum is known to more digits
        assert value - 3 * found.upper_error - 1e-4 < found.upper < found.lower + 0.02
    assert found.played.returns.mean() == pytest.approx(found.lower, abs=5 * found.played.returns.std() / 2048**0.5)
    observation, _ = env.reset(KEY)
    action, memory = found.policy(observation)
    assert (action in range(env.spec.num_actions), memory) == (True, (0, 0.0))


@pytest.mark.long  # slow: solves the whole put
def test_ties_of_per_step_risk_go_to_the_first_action():
    solution = rp.solve(rp.AmericanPut().grid_problem(0.25), "cvar:0.25", "markov", episodes=10_000)
    assert solution.policy([1.2, 0.0])[0] == 0  # waiting and exercising are both worth 0 there
    assert solution.value == pytest.approx(0.030, abs=0.006)


def test_parameters_may_differ_between_lanes(unchecked):
    envs = [as_arrays(rp.MeanReversionTrading(cost=cost)) for cost in (0.0, 1.0)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)
    rewards = eqx.filter_jit(eqx.filter_vmap(lambda env: env.step(KEY, at(1.0, 0.0), jnp.int32(20))[2]))(stacked)
    np.testing.assert_allclose(rewards, [-2.0, -6.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("MeanReversionTrading", {"sigma": 0}, "sigma must be more than 0, got 0"),
        ("MeanReversionTrading", {"theta": "high"}, "theta must be a number, got 'high'"),
        ("MeanReversionTrading", {"trades": 1}, "trades must be at least 2, got 1"),
        ("AmericanPut", {"strike": float("nan")}, "strike must be a finite number, got nan"),
        ("AmericanPut", {"steps": 0}, "steps must be at least 1, got 0"),
        ("OptionHedging", {"cost": -1.0}, "cost must be at least 0, got -1"),
        ("OptionHedging", {"hedges": 1}, "hedges must be at least 2, got 1"),
    ],
)
def test_a_wrong_field_is_refused_by_name(name, fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.make(name, **fields)


def test_a_wrong_resolution_is_refused():
    with pytest.raises(rp.RiskpathError, match="resolution must be more than 0, got 0"):
        rp.AmericanPut().grid_problem(0.0)
