"""Brackets of problems with an exogenous price and positions on a lattice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.grid_chance import PriceAxis, cardinal, cells, node_weights, price_stencil
from riskpath.mdp.grid_form import Form, form_of
from riskpath.mdp.grid_market import BROADCASTING, MarketPolicy, bracket_mean, own_thresholds
from riskpath.mdp.grid_rows import Window, between, raised, read_up, returns
from riskpath.mdp.grid_utility import SHORTFALL


@pytest.fixture(autouse=True)
def broadcasting():
    with BROADCASTING():
        yield


@pytest.mark.parametrize(("middle", "slope", "width"), [(4.0, 0.7, 9), (15.3, 2.5, 32), (1.2, 3.0, 24)])
def test_the_interpolant_of_chance_has_its_expectation(middle, slope, width):
    values = np.random.default_rng(0).normal(size=width)  # any function, however rough
    noise = np.asarray(jax.random.normal(jax.random.key(0), (200_000,)))
    drawn = np.asarray(cardinal(jnp.float32(middle) + jnp.float32(slope) * noise, width)) @ values
    at = (jnp.full((1,), middle, jnp.float32), jnp.full((1,), slope, jnp.float32))
    weights = np.asarray(node_weights(*at, width))[0]
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert drawn.mean() == pytest.approx(weights @ values, abs=4 * drawn.std() / 200_000**0.5)


def test_cells_bound_concave_functions_from_above():
    means, probs = cells()
    assert probs.sum() == pytest.approx(1)
    shortfall = probs @ np.minimum(means - 0.3, 0)  # E[min(ξ − c, 0)] = −c Φ(c) − φ(c)
    exact = -0.3 * 0.6179114 - 0.3813878
    assert exact - 1e-6 <= shortfall <= exact + 2e-4


@pytest.mark.parametrize("curved", [False, True])
def test_prices_between_points_are_read_by_cubics(curved):
    axis = PriceAxis(-0.5, 0.1, 21, curved)
    place = np.array([0.13, 0.72, 1.05, 1.38], np.float32)
    prices = np.exp(place) if curved else place
    row, weight = price_stencil(axis, jnp.asarray(prices))
    at_points = np.log(axis.points) if curved else axis.points
    np.testing.assert_allclose((np.asarray(weight) * at_points[np.asarray(row)] ** 3).sum(axis=1), place**3, rtol=1e-4)


@pytest.mark.parametrize("shift", [-0.7, -0.013, 0.0, 0.4])
@pytest.mark.parametrize("kink", [0.0, 0.0131])
def test_rows_are_read_from_above_beside_kinks_too(shift, kink):
    window = Window(-3.0, 0.05)
    x = np.asarray(returns(window, 120))
    for function in (lambda x: -np.log1p(np.exp(-3 * x)), lambda x: np.minimum(x - kink, 0.0)):
        rows, exact = jnp.asarray(function(x)[None, None].astype(np.float32)), function(x + shift)
        read = read_up(raised(rows), jnp.zeros((1,), jnp.int32), jnp.full((1, 1), shift, jnp.float32), window)
        above = np.asarray(read[0])[0, 0]
        inside = (x + shift > x[1]) & (x + shift < x[-2])
        assert (above[inside] >= exact[inside] - 1e-5).all()
        assert (above[inside] <= exact[inside] + 0.02).all()


def test_reading_between_points_is_exact_beside_a_kink_and_for_parabolas():
    rest = np.linspace(0, 1, 5, dtype=np.float32)
    parabola = lambda x: -((x - np.float32(0.3)) ** 2)  # noqa: E731
    for points, exact in ((parabola(np.arange(-1, 3, dtype=np.float32)), parabola(rest)), ([-1, 0, 0, 0], 0 * rest)):
        near = tuple(jnp.full((5,), point, jnp.float32) for point in points)
        np.testing.assert_allclose(between(near, rest), exact, atol=1e-6)


def test_a_sample_is_valued_at_its_own_threshold_where_that_is_clearly_better():
    sample = np.random.default_rng(0).normal(size=4000)
    for goal in (0.0, 2.0):
        utility = SHORTFALL.__class__(0.0, 10.0)
        value = own_thresholds(sample, utility, goal) + 10 * np.minimum(sample - goal, 0)
        assert value.mean() == pytest.approx(-1.755, abs=0.1)  # CVaR of a normal variable at 10 %


@functools.cache
def trading(steps: int, **fields) -> Form:
    form = form_of(rp.MeanReversionTrading(steps=steps, trades=5, **fields).grid_problem())
    assert isinstance(form, Form)
    return form


def test_the_form_of_the_problems_of_the_library():
    form = trading(4)
    assert (form.price, form.position, form.ends) == (0, 1, False)
    assert (form.lattice[0], form.lattice[form.start]) == pytest.approx((-8, 0))
    assert form.lattice[-1] >= 8  # all reachable
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
    solution = rp.solve_grid(form.problem, "cvar:0.5", episodes=1024, tolerance=0.99, time_limit=1)
    assert isinstance(solution.policy, MarketPolicy)
    assert solution.upper is not None
    assert solution.upper_interval is not None
    assert solution.interval[0] <= solution.upper_interval[1]
    assert solution.upper - solution.lower < 0.05
    assert set(solution.touched) == {"price", "inventory", "return"}
    assert solution.touched["inventory"] == {"share": 0, "value": 0}
    plain = rp.CVaR(0.5).value(np.sort(solution.policy.simulate(4_000, 9)))
    assert plain == pytest.approx(solution.lower, abs=0.03)
    action, memory = solution.policy([1.0, 0.0, 0.0])
    assert (action, memory) == (2, (0, 0.0))  # at the mean price nothing is traded


def test_a_put_far_out_of_the_money_is_worth_nothing():
    problem = rp.AmericanPut(start_price=3, sigma=0.1, steps=3).grid_problem()
    solution = rp.solve_grid(problem, "cvar:0.5", tolerance=0.5, time_limit=1)
    assert (solution.lower, solution.upper) == pytest.approx((0, 0), abs=1e-6)
