"""Goals with a floor: the Lagrangian as a problem of goals, its bounds, and policies that reach several floors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.floored_goals import SHARES, FlooredGoal, FlooredGoals, serves_floor
from riskpath.agents.adaptive.goals import TIE
from riskpath.agents.adaptive.mixing import MixtureSample, best_above_floor
from riskpath.agents.adaptive.utilities import Floor, UtilityObjective
from riskpath.agents.episodes import PATH, Units

UNIT = 2.0
UNITS = Units(jnp.float32(UNIT), jnp.float32(0.0), jnp.float32(-4.0), jnp.float32(4.0), jnp.zeros(PATH))
ATOMS = np.sort(np.random.default_rng(0).normal(size=(3, 40)), axis=1) * [[0.1], [0.7], [1.5]] + [[-0.5], [0.0], [0.3]]
"""The returns of three policies: the safer, the lower the mean."""
PAIRS = [
    ("mean", "cvar:0.2"),
    ("mean", "0.5*mean+0.5*cvar:0.3"),
    ("cvar:0.2", "mean"),
    ("0.3*mean+0.7*cvar:0.3", "mean"),
    ("mean", "mean"),
]


def form_of(risk: str, measure: str, floor: float = 0.0) -> FlooredGoals:
    return FlooredGoals(rp.parse_risk(risk), Floor(rp.parse_risk(measure), floor))


@eqx.filter_jit  # one program, not one for each operation
def expected(form: FlooredGoals, context: FlooredGoal, atoms: Any) -> jax.Array:
    """Return the expected utility of every row of equally likely returns, in units."""
    return jnp.mean(form.utility(context, atoms / UNIT, form.plan(), UNITS), axis=-1)


@pytest.mark.parametrize(("risk", "measure"), PAIRS)
def test_the_best_goal_gives_the_lagrangian_of_every_share(risk, measure):
    form, atoms = form_of(risk, measure), jnp.asarray(ATOMS[2], jnp.float32)
    for number, share in enumerate(SHARES):
        values = []
        for goal in (*ATOMS[2], -5.0, 5.0):
            context = FlooredGoal(jnp.float32(goal), jnp.int32(number))
            values.append(UNIT * float(form.value(context, expected(form, context, atoms), form.plan(), UNITS)))
        beta, rho = (float(rp.parse_risk(one).value(ATOMS[2])) for one in (risk, measure))
        assert max(values) == pytest.approx((1 - share) * beta + share * rho, abs=20 * TIE)


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_the_recursion_holds_for_every_share(discount):
    form, z, r = form_of("mean", "cvar:0.2"), jnp.linspace(-3.0, 4.0, 29)[:, None], 2.5
    for number in range(len(SHARES)):
        context = FlooredGoal(jnp.float32(1.3), jnp.int32(number))
        before = expected(form, context, r + discount * z)
        after = expected(form, form.advance(context, jnp.float32(r), discount), z)
        shift = before - discount * after  # a constant
        np.testing.assert_allclose(shift, shift[0], atol=1e-5)


@pytest.mark.parametrize(("floor", "preferred"), [(-2.5, {0}), (-0.8, {2, 3, 4, 5, 6}), (0.5, {len(SHARES) - 1})])
def test_the_plan_bounds_the_best_mean_above_a_floor(floor, preferred):
    form, laws = form_of("mean", "cvar:0.2", floor), jnp.asarray(ATOMS, jnp.float32)
    plan = form.plan()
    for _ in range(2):  # the second one looks near the goals of the first one
        plan = eqx.filter_jit(
            lambda plan: form.refresh(plan, lambda x: ((), jnp.max(expected(form, x, laws))), UNITS, jnp.zeros(()))
        )(plan)
    weights = best_above_floor(rp.Mean(), ATOMS, rp.CVaR(0.2), floor)
    best = float(weights @ ATOMS.mean(axis=1))
    assert int(form.preferred(plan)) in preferred
    if floor < 0:  # a larger one cannot be had
        assert best - 0.02 <= UNIT * float(plan.duals.min()) <= best + 0.15  # with eight shares
    tail = float(np.quantile(ATOMS[0], 0.2))
    safest = form.first(plan, jnp.int32(len(SHARES) - 1))
    assert (int(safest.share), float(safest.goal)) == (len(SHARES) - 1, pytest.approx(tail, abs=0.1))


def test_training_does_not_depend_on_the_floor():
    draws = jnp.asarray(np.random.default_rng(1).random((50, 2)), jnp.float32)
    starts, spec = [], rp.make("ThreeState").spec
    for floor in (-5.0, 50.0):
        agent = rp.Adaptive("mean", subject_to={"cvar:0.1": floor}, network=rp.Network(hidden=(4,)))
        state = agent.init(spec, key=jax.random.key(0))
        duals = jnp.arange(8.0) if floor < 0 else -jnp.arange(8.0)
        state = eqx.tree_at(lambda s: s.params.plan.duals, state, duals)
        starts.append(eqx.filter_vmap(agent.training_start, in_axes=(None, 0))(state, draws))
    np.testing.assert_array_equal(starts[0].share, starts[1].share)
    np.testing.assert_array_equal(starts[0].goal, starts[1].goal)
    assert set(np.asarray(starts[0].share).tolist()) == set(range(len(SHARES)))


def test_the_best_draw_of_many_candidates_is_found():
    rng = np.random.default_rng(2)
    returns = rng.normal(size=(6, 500)) * [[0.1], [0.5], [0.8], [1.2], [0.9], [1.0]] + [
        [0.0],
        [0.3],
        [0.4],
        [0.5],
        [0.1],
        [0.45],
    ]
    sample, floor, line = MixtureSample(rp.CVaR(0.2), returns), -0.7, np.linspace(0.0, 1.0, 51)
    tried = [(1 - s) * np.eye(6)[a] + s * np.eye(6)[b] for a in range(6) for b in range(a) for s in line]
    best = max(weights @ returns.mean(axis=1) for weights in tried if sample.value(weights) >= floor)
    weights = best_above_floor(rp.Mean(), returns, rp.CVaR(0.2), floor)
    assert sample.value(weights) >= floor - 1e-9
    assert weights @ returns.mean(axis=1) == pytest.approx(best)


@pytest.mark.parametrize(
    ("risk", "measure", "goals"),
    [
        *((risk, measure, True) for risk, measure in PAIRS),
        ("cvar:0.5", "cvar:0.1", False),
        ("mean", "wang:-0.5", False),
        ("entropic:0.1", "cvar:0.1", False),
        ("mean", "spectral:0.1=0.5,0.5=0.5", False),
    ],
)
def test_which_floors_are_goals(risk, measure, goals):
    assert serves_floor(rp.parse_risk(risk), rp.parse_risk(measure)) is goals
    for agent in (rp.Adaptive, rp.AdaptiveContinuous):
        objective = agent(risk, subject_to={measure: 1.0}).objective
        assert isinstance(objective, FlooredGoals if goals else UtilityObjective)


def bets() -> rp.FiniteMDP:
    """Return a problem with a coin before a bet: the best mean always bets, the safest policy only after a gain."""
    table: dict[Any, Any] = {("start", 0): [(0.5, 4.0, "up"), (0.5, -4.0, "down")]}
    for state in ("up", "down"):
        table[state, 0] = [(1.0, 0.0, "end")]
        table[state, 1] = [(0.5, 6.0, "end"), (0.5, -4.0, "end")]
    return rp.FiniteMDP.from_outcomes(table, start="start", name="Bets")


@pytest.fixture(scope="module")
def run() -> rp.Run:
    training = rp.Training(
        batch_size=32,
        num_quantiles=16,
        train_freq=4,
        learning_starts=0,
        learning_rate=3e-3,
        target_update_interval=50,
    )
    agent = rp.Adaptive("mean", subject_to={"cvar:0.25": -5.0}, network=rp.Network(hidden=(32,)), training=training)
    return rp.train(agent, bets(), steps=3_000, num_envs=4, seed=0, progress=False)


def test_one_training_reaches_the_frontier_at_several_floors(run):
    mdp, risk = bets(), rp.CVaR(0.25)
    best, safest = (rp.solve(mdp, one).law for one in ("mean", risk))
    low, high = (float(risk.value(law)) for law in (best, safest))
    assert (low, high) == (-8.0, -4.0)
    found = run.floors([-9.0, -7.0, -6.0, -5.0, -4.0, 3.0])
    for row in found.rows():
        assert row["cvar:0.25"] >= min(row["floor"], high) - 0.25  # 3 cannot be had: the largest that can
        assert row["mean"] >= row["best mean"] - 0.1
    assert found.rows()[1]["mean"] < found.rows()[0]["mean"]  # what the floor costs


def test_the_trained_floor_and_another_one_afterwards(run):
    risk, law = rp.CVaR(0.25), run.law()
    assert risk.value(law) >= -5.25 > risk.value(rp.solve(bets(), "mean").law)
    other = run.serve(floor=-7.0).law()
    assert other.mean > law.mean + 0.1
    assert [weight for weight, _ in run.policy(floor=-7.0).members()] == pytest.approx(
        [weight for weight, _ in run.serve(floor=-7.0).policy().members()]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.floors([]), "floors must be at least one number, got none"),
        (lambda run: run.policy(floor=float("nan")), "the floor of cvar:0.25 must be a finite number, got nan"),
        (lambda run: run.serve("cvar:0.5", floor=1.0), "was trained for mean and cannot serve cvar:0.5"),
        (lambda run: rp.AdaptivePPO("cvar:0.5", subject_to={"cvar:0.1": 1.0}), "takes one CVaR in objective and floor"),
        (lambda run: rp.AdaptivePPO("mean", subject_to={"wang:-0.5": 1.0}), "use Adaptive for mean with a floor"),
    ],
)
def test_bad_input_costs_one_line(run, call, message):
    with pytest.raises(rp.RiskpathError, match=message) as error:
        call(run)
    assert "\n" not in str(error.value)
