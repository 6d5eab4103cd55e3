"""Brackets of problems with an exogenous price and positions on a lattice."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special

import riskpath as rp
from riskpath.mdp.grid.axes import choose_axes, choose_returns, price_axis
from riskpath.mdp.grid.chance import PriceAxis, cardinal, cells, node_weights, price_stencil
from riskpath.mdp.grid.detect import form_of
from riskpath.mdp.grid.form import Form
from riskpath.mdp.grid.market import Bracket, better_of, bracket_mean, measure, own_thresholds
from riskpath.mdp.grid.market_policy import BROADCASTING, MarketPolicy
from riskpath.mdp.grid.rows import Window, between, raised, read_up
from riskpath.mdp.grid.tail import solve_tail
from riskpath.mdp.grid.utility import KinkedUtility
from tests.mdp.problems import normal_sum

NOISE = scipy.special.ndtri((np.arange(400) + 0.5) / 400)
"""A normal variable as 400 equally probable values."""


@pytest.fixture(autouse=True)
def broadcasting():
    with BROADCASTING():
        yield


@pytest.mark.parametrize(("middle", "slope", "width"), [(4.0, 0.7, 9), (15.3, 2.5, 32), (1.2, 3.0, 24)])
def test_the_interpolant_of_chance_has_its_expectation(middle, slope, width):
    values = np.random.default_rng(0).normal(size=width)  # any function, however rough
    noise = np.random.default_rng(1).normal(size=200_000)
    parts = jax.jit(cardinal, static_argnums=1)((middle + slope * noise).astype(np.float32), width)
    drawn = np.asarray(parts) @ values
    weights = np.asarray(node_weights(*(np.full(1, x, np.float32) for x in (middle, slope)), width))[0]
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
    row, weight = jax.jit(lambda prices: price_stencil(axis, prices))(prices)
    at_points = np.log(axis.points) if curved else axis.points
    np.testing.assert_allclose((np.asarray(weight) * at_points[np.asarray(row)] ** 3).sum(axis=1), place**3, rtol=1e-4)


@jax.jit
def read_raised(rows, place, shift, window):
    return read_up(raised(rows), place, shift, window)


@pytest.mark.parametrize("shift", [-0.7, -0.013, 0.0, 0.4])
@pytest.mark.parametrize("kink", [0.0, 0.0131])
def test_rows_are_read_from_above_beside_kinks_too(shift, kink):
    window, place = Window(-3.0, 0.05), np.zeros(1, np.int32)
    x = np.float32(-3.0) + np.float32(0.05) * np.arange(120, dtype=np.float32)
    for function in (lambda x: -np.log1p(np.exp(-3 * x)), lambda x: np.minimum(x - kink, 0.0)):
        rows, exact = function(x)[None, None].astype(np.float32), function(x + shift)
        above = np.asarray(read_raised(rows, place, np.full((1, 1), shift, np.float32), window)[0])[0, 0]
        inside = (x + shift > x[1]) & (x + shift < x[-2])
        assert (above[inside] >= exact[inside] - 1e-5).all()
        assert (above[inside] <= exact[inside] + 0.02).all()


def test_reading_between_points_is_exact_beside_a_kink_and_for_parabolas():
    rest = np.linspace(0, 1, 5, dtype=np.float32)
    parabola = lambda x: -((x - np.float32(0.3)) ** 2)
    for points, exact in ((parabola(np.arange(-1, 3, dtype=np.float32)), parabola(rest)), ([-1, 0, 0, 0], 0 * rest)):
        near = tuple(np.full(5, point, np.float32) for point in points)
        np.testing.assert_allclose(jax.jit(between)(near, rest), exact, atol=1e-6)


def test_a_sample_is_valued_at_its_own_threshold_where_that_is_clearly_better():
    sample = np.random.default_rng(0).normal(size=4000)
    for goal in (0.0, 2.0):
        utility = KinkedUtility(0.0, 10.0)
        value = own_thresholds(sample, utility, goal) + 10 * np.minimum(sample - goal, 0)
        assert value.mean() == pytest.approx(-1.755, abs=0.1)  # CVaR of a normal variable at 10 %


def test_the_form_of_the_problems_of_the_library():
    form = form_of(rp.MeanReversionTrading(steps=4, trades=5).grid_problem())
    assert isinstance(form, Form)
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
        pytest.param({}, "decisions leave the axis of place", marks=pytest.mark.long),
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
        solution = rp.solve(problem, "cvar:0.5", episodes=500)
        assert (solution.upper, solution.upper_kind, solution.bracket) == (None, "none", None)
        assert solution.estimate is not None
        assert "no upper bound" in solution.describe()


def brackets(env: Any, level: float, finer: float, paths: int) -> tuple[Bracket, Bracket]:
    """Return the brackets of the mean, without a bound, and of CVaR from one pass over few prices."""
    form, utility = form_of(env.grid_problem()), KinkedUtility(0.0, 1 / level)
    assert isinstance(form, Form)
    prices = price_axis(form, finer)
    mean = bracket_mean(form, 1024, 0, bound=False, prices=prices)
    mean_value = float(rp.CVaR(level).value(np.sort(mean.played.returns)))
    window = choose_returns(form, utility, mean.lower, mean_value, mean.played)
    axes = choose_axes(form, prices, [mean.played, mean.played], window, 256)
    means = mean.policy.means
    return mean, measure(form, means, solve_tail(form, axes, utility, means, form.paths(paths, 3)), 1024, 0)


def shortfall(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return E[min(Z, 0)] of normal variables Z."""
    at = -mean / np.maximum(scale, 1e-9)
    return mean * scipy.special.ndtr(at) - scale * np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)


def test_cvar_of_trading_is_bracketed():
    env = rp.MeanReversionTrading(steps=2, trades=3, sigma=0.6, penalty=0.02, start_price=1.8)
    _, found = brackets(env, 0.5, 0.8, 32)
    # all first trades × prices × second trades × thresholds
    goals, trades, decay = np.linspace(-1, 2, 601), np.array([-2.0, 0.0, 2.0]), np.exp(-0.2)
    scale = 0.6 * np.sqrt((1 - decay**2) / 4)
    first, second = trades[:, None, None, None], trades[:, None]
    price = (1 + 0.8 * decay + scale * NOISE)[:, None, None]
    held = first + second
    paid = -1.8 * first - price * second - 0.005 * (first**2 + second**2) - 0.02 * held**2
    means = paid + held * (1 + (price - 1) * decay)
    exact = (goals + shortfall(means - goals, abs(held) * scale).max(axis=2).mean(axis=1) / 0.5).max()
    assert found.upper is not None
    assert found.lower == pytest.approx(exact, abs=0.005)
    assert exact - 3 * found.upper_error - 0.001 < found.upper < found.lower + 0.05
    assert set(found.touched) == {"price", "inventory", "return"}
    assert found.touched["inventory"] == {"share": 0, "value": 0}
    plain = rp.CVaR(0.5).value(np.sort(found.policy.simulate(1024, 9)))
    assert plain == pytest.approx(found.lower, abs=0.03)
    action, memory = found.policy([1.8, 0.0, 0.0])
    assert (action, memory) == (0, (0, 0.0))  # a high price falls
    # the mean-optimal policy is taken where it is clearly better, with a value of its own
    mean, _ = brackets(env, 0.5, 0.8, 0)
    assert better_of(found, mean, KinkedUtility(0.0, 2.0), 1024, 0) is found
    other = better_of(replace(found, lower=-9.0), mean, KinkedUtility(0.0, 2.0), 1024, 0)
    assert other.policy is mean.policy
    assert other.upper == found.upper
    expected = float(rp.CVaR(0.5).value(np.sort(mean.played.returns)))
    assert other.lower == pytest.approx(expected, abs=4 * other.lower_error + 0.01)


@pytest.mark.long  # trading, above, has the same bounds
def test_cvar_of_a_put_is_bracketed():
    mean, found = brackets(rp.AmericanPut(steps=3), 0.25, 0.06, 512)
    assert mean.lower == pytest.approx(0.20703, abs=5e-4)  # waiting is best: a European put on a price of exp(−0.2)
    # the price after one step × after two × thresholds; waiting is free
    goals, growth = np.linspace(-0.2, 0.5, 141), np.exp(-0.345 / 3 + 0.3 * NOISE / 3**0.5)
    paid = lambda price: np.minimum(np.maximum(1 - price, 0)[..., None] - goals, 0)
    waiting = np.stack([paid(price * growth).mean(axis=0) for price in growth])
    exact = (goals + np.maximum(paid(np.ones(())), np.maximum(paid(growth), waiting).mean(axis=0)) / 0.25).max()
    assert exact == pytest.approx(0.0221, abs=1e-4)
    assert found.upper is not None
    assert found.lower == pytest.approx(exact, abs=0.001)
    assert exact - 3 * found.upper_error < found.upper < exact + 0.003
    assert found.touched["return"] == {"share": 0, "value": 0}


@pytest.mark.long  # trading, above, has the same bounds
def test_a_continuous_problem_is_bracketed_and_its_policy_sees_the_return_so_far():
    solution = rp.solve(normal_sum(), "cvar:0.8", episodes=2048, tolerance=0.99, time_limit=1)
    assert solution.upper_kind == "information relaxation"
    assert solution.bracket is not None
    assert -0.005 <= solution.bracket < 0.03
    # all first actions × returns × second actions × thresholds
    goals, actions = np.linspace(-1, 3, 201), np.linspace(0, 1, 11)
    first, second = actions[:, None, None, None] * (0.3 + NOISE[:, None, None]), actions[:, None]
    exact = (goals + shortfall(first + 0.3 * second - goals, second).max(axis=2).mean(axis=1) / 0.8).max()
    assert solution.lower == pytest.approx(exact, abs=0.002)
    assert solution.upper is not None
    assert exact - 0.001 < solution.upper
    assert isinstance(solution.policy, MarketPolicy)
    _, memory = solution.policy([0.0])
    held = [solution.policy([0.0], memory, reward)[0] for reward in (-1.0, 0.5, 1.0)]
    assert held[0] == 10 > held[1] > held[2]  # a return near the threshold is kept
    returns = solution.policy.simulate(2048, seed=5)
    assert (returns == solution.policy.simulate(2048, seed=5)).all()


def test_the_mean_of_a_continuous_problem_is_exact():
    mean = rp.solve(normal_sum(), "mean", episodes=2048)
    assert (mean.lower, mean.upper) == pytest.approx((0.6, 0.6), abs=1e-3)
