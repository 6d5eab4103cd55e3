"""Brackets of problems with an exogenous price and positions on a lattice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.grid_chance import cardinal, cells, nodes, price_stencil
from riskpath.mdp.grid_form import Form, form_of
from riskpath.mdp.grid_market import BROADCASTING, MarketPolicy, bracket_mean
from riskpath.mdp.grid_rows import Window, bend, returns, shifted, shifted_up


@pytest.fixture(autouse=True)
def broadcasting():
    with BROADCASTING():
        yield


@pytest.mark.parametrize("count", [9, 17, 33])
def test_the_interpolant_of_chance_has_its_expectation_exactly(count):
    chance = nodes(count)
    values = np.random.default_rng(0).normal(size=count)  # any function, however rough
    noise = np.asarray(jax.random.normal(jax.random.key(0), (200_000,)))
    drawn = np.asarray(cardinal(noise, count)) @ values
    assert drawn.mean() == pytest.approx(chance.weights @ values, abs=4 * drawn.std() / 200_000**0.5)
    assert chance.weights @ chance.places**2 == pytest.approx(1, abs=0.02)


def test_cells_bound_concave_functions_from_above():
    means, probs = cells()
    assert probs.sum() == pytest.approx(1)
    shortfall = probs @ np.minimum(means - 0.3, 0)  # E[min(ξ − c, 0)] = −c Φ(c) − φ(c)
    exact = -0.3 * 0.6179114 - 0.3813878
    assert exact - 1e-6 <= shortfall <= exact + 2e-4


def test_cubic_prices_are_exact_for_cubic_functions():
    points = np.array([0.0, 0.5, 1.2, 2.0, 2.1, 3.0], np.float32)
    prices = np.array([0.1, 0.7, 2.05, 2.9, 9.0], np.float32)
    row, weight = price_stencil(jnp.asarray(points), jnp.asarray(prices))
    read = (np.asarray(weight) * (points**3)[np.asarray(row)]).sum(axis=1)
    np.testing.assert_allclose(read, np.minimum(prices, 3.0) ** 3, rtol=1e-4)


@pytest.mark.parametrize("shift", [-0.7, -0.013, 0.0, 0.4])
def test_rows_are_read_at_shifted_returns_and_from_above(shift):
    window = Window(0.2, 0.05, -60.0)
    x = np.asarray(returns(window, 121))
    smooth = -np.log1p(np.exp(-3 * x))[None, :].astype(np.float32)  # concave
    exact = -np.log1p(np.exp(-3 * (x + shift)))
    by = jnp.full((1,), shift, jnp.float32)
    inside = (x + shift > x[1]) & (x + shift < x[-2])
    read = np.asarray(shifted(jnp.asarray(smooth), by, window))[0]
    above = np.asarray(shifted_up(jnp.asarray(smooth), bend(jnp.asarray(smooth), window), by, window)[0])[0]
    np.testing.assert_allclose(read[inside], exact[inside], atol=0.02)
    assert (above[inside] >= exact[inside] - 2e-4).all()
    assert (read[inside] <= exact[inside] + 1e-5).all()


@functools.cache
def trading(steps: int, **fields) -> Form:
    form = form_of(rp.MeanReversionTrading(steps=steps, trades=5, **fields).grid_problem())
    assert isinstance(form, Form)
    return form


def test_the_form_of_the_problems_of_the_library():
    form = trading(4)
    assert (form.price, form.position, form.ends) == (0, 1, False)
    assert (form.lattice[0], form.lattice[-1], form.lattice[form.start]) == pytest.approx((-8, 8, 0))  # all reachable
    hedging, put = (form_of(env.grid_problem()) for env in (rp.OptionHedging(steps=3), rp.AmericanPut(steps=3)))
    assert isinstance(hedging, Form)
    assert len(hedging.lattice) == 21  # hedges are never left
    assert isinstance(put, Form)
    assert (put.position, put.ends, put.silent) == (None, True, (True, True, False))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"noise": rp.finite_noise([-1.0, 1.0])}, "chance is not a normal variable"),
        (
            {"move": lambda time, post, noise: ((post[0] + noise,), 0.0)},
            "decisions and chance move the same coordinate",
        ),
        ({"decide": lambda time, state, action: ((0.3 * action,), 0.0)}, "decisions leave the points of place"),
        ({}, "decisions leave the axis of place"),
    ],
)
def test_problems_of_another_form_have_no_bound(changes, reason):
    fields = {
        "axes": {"place": np.arange(-3.0, 4.0)},
        "actions": [-1.0, 0.0, 1.0],
        "steps": 2,
        "start": (0.0,),
        "noise": rp.normal_noise(8),
        "decide": lambda time, state, action: ((state[0] + action,), 0.0),
        "move": lambda time, post, noise: (post, post[0] * noise),
        "return_points": 101,
    }
    problem = rp.GridProblem(**(fields | changes))
    assert form_of(problem) == reason
    if reason == "decisions leave the axis of place":
        solution = rp.solve_grid(problem, "cvar:0.5", episodes=500)
        assert (solution.upper, solution.upper_kind, solution.bracket) == (None, "none", None)
        assert solution.estimate is not None
        assert "no upper bound" in solution.describe()


def test_the_mean_of_trading_is_bracketed_over_all_inventories():
    found = bracket_mean(trading(12), 2048, 0)
    assert found.upper is not None
    assert -3 * found.upper_error < found.upper - found.lower < 0.02
    assert found.played.returns.mean() == pytest.approx(found.lower, abs=5 * found.played.returns.std() / 2048**0.5)


def test_cvar_of_trading_is_bracketed_and_no_rule_is_above():
    form = trading(3, penalty=0.05)
    solution = rp.solve_grid(form.problem, "cvar:0.5", episodes=1024, tolerance=0.99)
    assert isinstance(solution.policy, MarketPolicy)
    assert solution.upper is not None
    assert solution.upper_interval is not None
    assert solution.interval[0] <= solution.upper_interval[1]
    assert solution.upper - solution.lower < 0.05
    assert set(solution.touched) == {"price", "inventory"}
    plain = rp.CVaR(0.5).value(np.sort(solution.policy.simulate(4_000, 9)))
    assert plain == pytest.approx(solution.lower, abs=0.03)
    action, memory = solution.policy([1.0, 0.0, 0.0])
    assert (action, memory) == (2, (0, 0.0))  # at the mean price nothing is traded


def test_a_put_far_out_of_the_money_is_worth_nothing():
    solution = rp.solve(rp.AmericanPut(start_price=3, sigma=0.1, steps=3), "cvar:0.5", tolerance=0.5)
    assert (solution.lower, solution.upper) == pytest.approx((0, 0), abs=1e-6)
