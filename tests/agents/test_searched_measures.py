"""Measures that are a search over one number: their contexts and utilities, the search, and what Adaptive learns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.aversions import Aversion, AversionObjective, entropic, exponential
from riskpath.agents.adaptive.thresholds import BLUR, CLOSE, TIE, Left, ThresholdObjective, Thresholds
from riskpath.agents.episodes import PATH, Units
from riskpath.risk.utility_families import ThresholdFamily
from tests.agents.test_adaptive import LEARN
from tests.agents.test_losses import window

UNIT = 4.0
UNITS = Units(jnp.float32(UNIT), jnp.float32(2.0), jnp.float32(-8.0), jnp.float32(12.0), jnp.zeros(PATH))


class SearchedOCE(rp.OCE, ThresholdFamily):
    """A measure of one's own: a certainty equivalent that is learned as a search over its threshold."""

    @property
    def threshold(self) -> None:
        return None

    def gain(self, x: Any, unit: Any, blur: Any) -> Any:
        return self.utility(x)

    def value_at(self, threshold: Any, gain: Any, unit: Any) -> Any:
        return threshold + gain


SMOOTH = SearchedOCE(lambda x: x - 0.9 * ((x**2 + 25.0) ** 0.5 - 5.0), name="smooth")
THRESHOLDS = [rp.VaR(0.2), rp.ReachProbability(5.0), SMOOTH, rp.Utility(jnp.tanh)]
AVERSIONS = [rp.EVaR(0.2), rp.EVaR(0.7), rp.Entropic(0.1)]
Z = np.sort(np.random.default_rng(0).normal(3.0, 4.0, size=400)).clip(-8.0, 12.0).astype(np.float32)
EVEN = jnp.full(len(Z), 1.0 / len(Z))


def settled(form: ThresholdObjective) -> Thresholds:
    """Return the plan without rewards to go, in which jumps are steep."""
    return eqx.tree_at(lambda plan: plan.blur, form.plan(), jnp.asarray(BLUR[1]))


@pytest.mark.parametrize("discount", [1.0, 0.8])
@pytest.mark.parametrize("risk", THRESHOLDS, ids=str)
def test_the_utility_of_a_threshold_is_the_same_after_a_step(risk, discount):
    form = ThresholdObjective(risk)
    plan, z, r = settled(form), jnp.linspace(-5.0, 6.0, 23) / UNIT, 1.5
    now = Left(jnp.float32(2.3), jnp.float32(discount))
    utility = eqx.filter_jit(lambda context, z: form.utility(context, z, plan, UNITS))
    before = utility(now, r / UNIT + discount * z)
    after = utility(form.advance(now, jnp.float32(r), discount), z)
    np.testing.assert_allclose(before - TIE * r / UNIT, discount * after, atol=2e-4)


@pytest.mark.parametrize("risk", THRESHOLDS, ids=str)
def test_utilities_are_finite_while_all_returns_are_the_same(risk):
    same = eqx.tree_at(lambda units: (units.low, units.high), UNITS, (UNITS.mean, UNITS.mean))
    form = ThresholdObjective(risk)
    utility = eqx.filter_jit(lambda z: form.utility(Left(UNITS.mean, jnp.ones(())), z, settled(form), same))
    assert np.all(np.diff(utility(jnp.linspace(-2.0, 3.0, 11))) > 0)


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_an_aversion_needs_no_return_so_far(discount):
    form, probs = AversionObjective(rp.EVaR(0.2)), np.array([0.2, 0.5, 0.3])
    law, now, r = jnp.array([[-3.0, 1.0], [0.5, 1.5], [4.0, 2.0]]), Aversion(jnp.float32(0.3)), 0.7
    value = lambda context, law: form.expected(context, law, jnp.asarray(probs), form.plan(), UNITS)
    after = value(form.advance(now, jnp.float32(r), discount), law)
    np.testing.assert_allclose(value(now, r + discount * law), r + discount * after, rtol=1e-5)
    columns = np.asarray(law, float).T
    by_hand = [-np.log(probs @ np.exp(-0.3 * UNIT * column)) / (0.3 * UNIT) for column in columns]
    np.testing.assert_allclose(value(now, law), by_hand, rtol=1e-5)


@pytest.mark.parametrize("risk", THRESHOLDS + AVERSIONS, ids=str)
def test_the_critic_tells_the_best_parameter_and_others_are_compared(risk):
    form: Any = rp.Adaptive(risk).objective
    wanted = ThresholdObjective if risk in THRESHOLDS else AversionObjective
    assert type(form).__name__ == wanted.__name__
    plan: Any = settled(form) if risk in THRESHOLDS else form.plan()
    law = jnp.asarray(Z) / UNIT
    root = lambda context: (law, jnp.stack([form.expected(context, law, EVEN, plan, UNITS)] * 2))
    found = np.asarray(eqx.filter_jit(form.refresh)(plan, root, UNITS, jnp.float32(1.0)).first)
    assert len(found) == form.candidates == len(set(found.tolist()))
    sample, probs = Z.astype(float), np.full(len(Z), 1 / len(Z))
    if isinstance(risk, rp.EVaR):
        assert found[0] == pytest.approx(risk.aversion(sample, probs), rel=0.05)
    elif isinstance(risk, rp.Entropic | rp.ReachProbability):
        assert found[0] == np.float32(risk.level)
    elif isinstance(risk, rp.VaR):
        assert found[0] == pytest.approx(np.quantile(sample, 0.2), abs=0.4)
    elif not isinstance(risk, rp.Utility):
        assert found[0] == pytest.approx(risk.now(sample, probs), abs=0.3)
    assert found.min() < np.median(found) < found.max()


@pytest.mark.parametrize("risk", [rp.VaR(0.2), rp.EVaR(0.2)], ids=str)
def test_a_critic_that_predicts_the_same_ruin_everywhere_spoils_no_utility(risk):
    # Influence functions would follow these returns, and be blind to what a more careful policy gains.
    form: Any = rp.Adaptive(risk).objective
    ruin = jnp.where(jnp.arange(64) < 20, UNITS.low, UNITS.high) / UNIT
    even, plan = jnp.full(64, 1.0 / 64), form.plan()
    root = lambda context: (ruin, form.expected(context, ruin, even, plan, UNITS)[None])
    after = eqx.filter_jit(lambda plan: form.refresh(plan, root, UNITS, jnp.float32(0.0)))(plan)
    sure, bet = jnp.array([[1.0], [1.0]]), jnp.array([[-2.0], [3.0]])  # a bet with a better mean
    probs = jnp.array([0.3, 0.7])
    value = lambda m, law: form.expected(form.first(after, m), law, probs, after, UNITS)[0]
    careful = jax.jit(jax.vmap(lambda m: value(m, sure) > value(m, bet)))(jnp.arange(form.candidates, dtype=jnp.int32))
    assert int(careful[-6:].sum()) > 1
    explore = jax.jit(lambda u: jax.tree.leaves(form.explore(after, UNITS, u))[0])
    explored = [explore(jnp.float32(u)) for u in (0.01, 0.99)]
    assert float(explored[1] - explored[0]) > 0.9 * float(jnp.ptp(after.first[-6:]))


@pytest.mark.parametrize("risk", [rp.VaR(0.2), rp.EVaR(0.2)], ids=str)
def test_relabelled_contexts_follow_from_one_another_and_are_often_near_the_best(risk):
    form: Any = rp.Adaptive(risk).objective
    plan = eqx.tree_at(lambda p: p.first, form.plan(), jnp.full(form.candidates, 3.0))
    step = window(np.random.default_rng(0), False).transition
    now, after = eqx.filter_jit(lambda key: form.relabel(step, 400, plan, UNITS, 0.9, key=key))(jax.random.key(0))
    moved = jax.jit(jax.vmap(lambda context: form.advance(context, step.reward, 0.9)))(now)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), moved, after)
    weight = 0.9 ** float(step.time)
    if isinstance(form, AversionObjective):
        first, near = np.log(np.asarray(now.aversion) / weight / 3.0), 3 * CLOSE
    else:
        first, near = np.asarray(after.left) + float(step.return_so_far) - 3.0, 3 * CLOSE * UNIT
    assert 0.4 < (np.abs(first) < near).mean() < 0.8
    assert np.ptp(first) > 10 * near / 3


def test_the_squared_error_of_an_aversion_is_least_at_the_entropic_risk():
    form, context, probs = AversionObjective(rp.EVaR(0.2)), Aversion(jnp.float32(0.5)), jnp.array([0.4, 0.6])
    seen, often = jnp.array([-1.0, 1.5]), jnp.array([0.1, 0.9])  # a reward that is random, and no more to come
    plan, two = form.plan(), jnp.ones(2)
    right = entropic(seen, often, jnp.float32(0.5 * UNIT))

    def loss(shift: Any) -> Any:
        error = lambda aim: form.error(context, right + shift * two, aim * two, probs, plan, UNITS)
        return often @ jax.vmap(error)(seen) ** 2

    slope = jax.jit(jax.vmap(jax.grad(loss)))(jnp.array([-0.2, 0.0, 0.2]))
    assert np.sign(slope[::2]).tolist() == [-1.0, 1.0]
    assert abs(slope[1]) < 0.01 < 0.05 < min(abs(slope[0]), slope[2])
    assert np.isfinite(exponential(jnp.float32(-1e4), jnp.float32(50.0)))


@pytest.mark.parametrize(
    ("risk", "steps"), [("var:0.2", 1_000), pytest.param("evar:0.2", 3_000, marks=pytest.mark.long)]
)
@pytest.mark.usefixtures("unchecked")
def test_it_is_not_caught_by_the_policy_of_the_mean(risk, steps):
    # The best mean bets everything and loses all in more than a fifth of the episodes: any utility that follows from
    # these returns is blind to smaller losses.
    env = rp.BettingGame(rounds=2, bets=2, max_money=64.0)
    run = rp.train(rp.Adaptive(risk, **LEARN), env, steps=steps)
    optimum, best_mean = (rp.solve(env.mdp(), measure) for measure in (risk, "mean"))
    worst = best_mean.law.risk(risk)
    assert (run.values()[0, 0] - worst) / (optimum.value - worst) > 0.85
