"""The protocol of problems on a grid: quadratures, input checks, refused actions and potentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.grid.layout import common_unit, layout
from riskpath.mdp.grid.problem import Quadrature

COIN = rp.finite_noise([-1.0, 1.0])


def walk(**changes) -> rp.GridProblem:
    """Return a walk: the action adds to the place, a coin moves it, and the place at the end is paid."""
    fields = {
        "axes": {"place": np.arange(-6.0, 7.0)},
        "actions": [-1.0, 0.0, 1.0],
        "steps": 3,
        "start": (0.0,),
        "noise": COIN,
        "decide": lambda time, state, action: ((state[0] + action,), 0.0),
        "move": lambda time, post, noise: ((post[0] + noise,), 0.0),
        "finish": lambda state: state[0],
        "name": "walk",
    }
    return rp.GridProblem(**(fields | changes))


@pytest.mark.parametrize("power", range(8))
def test_normal_noise_has_the_moments_of_the_normal_distribution(power):
    noise = rp.normal_noise(16)
    moment = {0: 1, 2: 1, 4: 3, 6: 15}.get(power, 0)
    assert noise.weights @ noise.nodes**power == pytest.approx(moment, abs=1e-6 * 15**2)


def test_draws_have_the_law_of_the_noise():
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(rp.finite_noise([1.0, 5.0, 9.0], [0.2, 0.5, 0.3]).sample)(keys))
    for value, prob in ((1, 0.2), (5, 0.5), (9, 0.3)):
        assert (draws == value).mean() == pytest.approx(prob, abs=0.015)
    normal = np.asarray(jax.vmap(rp.normal_noise().sample)(keys))
    assert (normal.mean(), normal.std()) == pytest.approx((0, 1), abs=0.03)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"axes": {"place": [0.0]}},
            r"axis 'place' must have at least 2 finite points in ascending order, got \[0\.0\]",
        ),
        ({"axes": {"place": [1.0, 0.0]}}, "axis 'place' must have at least 2 finite points in ascending order"),
        ({"axes": {"place": [0.0, float("nan")]}}, "axis 'place' must have at least 2 finite points"),
        ({"axes": {"place": ["a", "b"]}}, "axis 'place' must be a list of numbers"),
        ({"axes": {}}, "axes must name at least one coordinate"),
        ({"actions": []}, r"actions must be finite numbers, \[A\] or \[A, k\], got shape \(0,\)"),
        ({"actions": 3.0}, "actions must be finite numbers"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"return_points": 1}, "return_points must be at least 2, got 1"),
        ({"start": (7.0,)}, r"start is outside of axis 'place': 7 is not in \[-6, 6\]"),
        ({"start": (0.0, 0.0)}, "start must have one number for each of place"),
        ({"start": {"spot": 0.0}}, "start must have the coordinates place, got spot"),
        ({"noise": [0.5, 0.5]}, "noise must be normal_noise"),
        ({"discount": 1.5}, "discount"),
        ({"action_labels": [1, 2]}, "got 2 action labels for 3 actions"),
    ],
)
def test_wrong_input_is_refused_in_one_line(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        walk(**fields)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("nodes", "weights", "message"),
    [
        ([0.0, 1.0], [0.5, 0.4], r"the weights of a quadrature must sum to 1, their sum is 0\.9"),
        ([0.0, 1.0], [1.5, -0.5], "finite nodes and weights of at least 0"),
        ([0.0, np.inf], [0.5, 0.5], "finite nodes"),
        ([0.0], [0.5, 0.5], "as many weights as nodes"),
        ([], [], "at least one"),
    ],
)
def test_a_wrong_quadrature_is_refused(nodes, weights, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        Quadrature(np.array(nodes), np.array(weights))


def test_an_action_that_leaves_the_grid_is_refused_there_only():
    refusals = jax.jit(lambda place: walk().options(jnp.int32(0), (place,))[3])
    for place, refused in ((0.0, [False] * 3), (6.0, [False, False, True]), (-6.0, [True, False, False])):
        assert refusals(jnp.float32(place)).tolist() == refused
    assert refusals(jnp.float32(6.5)).tolist() == [False, False, True]  # chance took it there: staying is possible
    upward = jax.jit(lambda place: walk(actions=[1.0, 2.0]).options(jnp.int32(0), (place,))[3])
    assert upward(jnp.float32(6.0)).tolist() == [False, False]  # there is no other


def test_a_potential_moves_rewards_in_time_only():
    plain, shaped = walk(), walk(potential=lambda time, state: 2.0 * state[0] + 1.0)
    totals = []
    for problem in (plain, shaped):
        state, total = (jnp.float32(0.0),), problem.start_potential
        for time, action in enumerate((1.0, -1.0, 1.0)):
            post, paid, _ = problem.after_decision(jnp.int32(time), state, jnp.float32(action))
            state, gained = problem.after_move(jnp.int32(time), post, jnp.float32(1.0))
            total += float(paid + gained)
        totals.append(total + float(problem.at_end(state)))
    assert totals == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(
    ("rewards", "unit"), [([2.0, -6.0, 0.0], 2.0), ([0.5, 0.75], 0.25), ([1.0, 2**0.5, 3**0.5], None), ([0.0], 0.0)]
)
def test_the_unit_of_rewards_divides_all_of_them(rewards, unit):
    assert common_unit(np.array(rewards, np.float32), 0.0) == (None if unit is None else pytest.approx(unit, abs=1e-6))


def test_the_layout_knows_which_axes_are_interpolated_and_which_moves_are_a_matrix():
    plan = layout(walk())
    assert (plan.decide_between, plan.move_between, plan.ends, plan.refusals) == ((False,), (False,), False, True)
    axis, matrix = plan.matrices[0] or (None, np.zeros((13, 13)))
    assert axis == 0
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    np.testing.assert_allclose(matrix @ np.arange(-6.0, 7.0), [-5.5, *np.arange(-5.0, 6.0), 5.5])
    assert layout(walk(noise=rp.finite_noise([0.5]))).move_between == (True,)
    paying = walk(move=lambda time, post, noise: ((post[0] + noise,), noise))
    assert layout(paying).matrices == (None, None, None)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(rp.RiskpathError, match="decide of walk pays nan at time 0"):
        layout(walk(decide=lambda time, state, action: ((state[0],), jnp.float32(np.nan))))
