"""QR-SRM: its utility, its loss against a transcription, and that it learns to look at its rewards."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import act_greedily
from riskpath.agents.episodes import no_episodes
from riskpath.agents.qrsrm import expected_utility, utility_knots
from riskpath.nn.losses import midpoints
from riskpath.risk.compose import as_distortion
from tests.agents.clocks import clock_at
from tests.agents.test_losses import NETWORK, SPEC, TRAINING, huber_by_hand, levels, loss_of, pick, window

ATOMS = np.random.default_rng(0).normal(3.0, 2.0, size=400).astype(np.float32)
AVERSE = ["mean", "cvar:0.2", "wang:-0.5", "pow:-1", "0.6*mean+0.4*cvar:0.1", "0.5*cvar:0.5+0.5*cvar:0.05"]


compiled_utility, compiled_knots = eqx.filter_jit(expected_utility), eqx.filter_jit(utility_knots)


def utility(risk: rp.DistortionMeasure, knots, z) -> np.ndarray:
    """Return u at several returns."""
    return np.asarray(compiled_utility(risk, jnp.asarray(knots), jnp.asarray(z, jnp.float32)[None, :]))


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("level", [0.03, 0.25, 0.9])
def test_the_utility_of_cvar_is_its_shortfall_below_the_quantile(level, pieces):
    risk = rp.CVaR(jnp.asarray(level))  # an array, so that one program serves all levels
    b = np.sort(ATOMS)[int(np.ceil(np.float32(level) * 400)) - 1]
    z = np.linspace(-4, 10, 29)
    found = utility(risk, compiled_knots(risk, jnp.asarray(ATOMS), pieces), z)
    np.testing.assert_allclose(found, b + np.minimum(z - b, 0) / level, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("risk", [rp.Mean(), rp.CVaR(1.0), rp.Wang(0.0), rp.POW(0.0)], ids=str)
def test_the_utility_of_the_mean_is_the_return(risk):
    z = np.linspace(-4, 10, 29)
    np.testing.assert_allclose(utility(risk, compiled_knots(risk, jnp.asarray(ATOMS), 8), z), z, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("text", AVERSE)
def test_the_measure_is_the_expected_utility_and_of_other_laws_more(text):
    risk = as_distortion(text)
    knots = compiled_knots(risk, jnp.asarray(ATOMS), 128)
    assert utility(risk, knots, ATOMS).mean() == pytest.approx(risk.value(ATOMS), abs=0.02)
    rng = np.random.default_rng(1)
    for centre, spread in [(3.0, 1.0), (0.0, 4.0), (6.0, 0.1)]:
        other = rng.normal(centre, spread, 200)
        assert utility(risk, knots, other).mean() <= risk.value(other) + 0.02
    slopes = np.diff(utility(risk, knots, np.linspace(-4, 10, 57)))
    assert (slopes >= -1e-4).all()
    assert (np.diff(slopes) <= 1e-3).all()


@pytest.mark.parametrize("text", AVERSE)
def test_before_the_first_estimate_it_is_linear(text):
    values = utility(as_distortion(text), jnp.full(16, jnp.inf), [-2.0, 0.0, 1.0, 5.0])
    np.testing.assert_allclose(values, values[2] * np.array([-2.0, 0.0, 1.0, 5.0]), rtol=1e-5)


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_its_loss(share, terminated):
    # With 20 pieces the 13th ends at h⁻¹(0.65) = 0.3, the level of the CVaR in the mixture.
    risk = rp.Mixture([(share, "mean"), (1 - share, "cvar:0.3")])
    agent = rp.QRSRM(risk, discount=0.9, pieces=20, network=NETWORK, training=TRAINING)
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    b = 0.9
    knots = jnp.full(20, b).at[-1].set(jnp.inf if share else b)
    state = eqx.tree_at(lambda s: (s.target_params, s.initial_memory.knots), state, (other.params, knots))
    step = window(np.random.default_rng(0), terminated).transition
    taus, target_taus = levels(jax.random.key(5))

    def quantiles(critic, observation, s, c, at):
        features = critic.features(observation, jnp.float32(s), jnp.float32(c))
        return np.asarray(critic.quantiles(features, jnp.asarray(at)))

    following, c = 0.3 * 4.0, 0.9**3
    whole = following + c * quantiles(other.params, step.next_observation, following, c, midpoints(7))
    values = share * whole + (1 - share) * (b + np.minimum(whole - b, 0) / 0.3)
    best = pick(values.mean(axis=0), [True, False, True])
    future = quantiles(other.params, step.next_observation, following, c, target_taus)[:, best]
    target = 0.3 * 1.5 + 0.9 * (0 if terminated else 1) * future
    predicted = quantiles(state.params, step.observation, 0.3 * (4.0 - 0.9**2 * 1.5), 0.9**2, taus)[:, 2]
    expected = huber_by_hand(predicted, taus, target, 0.7 * 0.3)
    assert loss_of(agent, state, step, jax.random.key(5)) == pytest.approx(expected, rel=1e-4)


def test_it_adds_up_its_discounted_rewards():
    agent = rp.QRSRM(discount=0.5, network=NETWORK, training=TRAINING)
    state = agent.init(SPEC, key=jax.random.key(0))
    memory, mask, whole = state.initial_memory, jnp.ones(3, bool), None
    for time, (reward, total) in enumerate([(0.0, 0.0), (8.0, 8.0), (-4.0, 6.0), (2.0, 6.5)]):
        step = rp.TimeStep(jnp.int32(0), jnp.float32(reward), mask, jnp.int32(0), jnp.int32(time))
        output = eqx.filter_jit(act_greedily)(agent, state, memory, step, key=jax.random.key(1))
        whole = eqx.filter_jit(agent.quantiles)(state, memory, step, midpoints(5))
        memory = output.memory
        assert float(memory.so_far) == total
    features = state.params.features(jnp.int32(0), jnp.float32(0.3 * 6.5), jnp.float32(0.125))
    future = np.asarray(state.params.quantiles(features, midpoints(5))) / 0.3
    assert whole is not None
    np.testing.assert_allclose(whole, 6.5 + 0.125 * future, rtol=1e-5)


@pytest.mark.parametrize(("updates", "due"), [(2, False), (3, True)])
def test_an_estimate_takes_the_quantiles_of_the_best_first_action(updates, due):
    training = rp.Training(num_action_quantiles=8, target_update_interval=10)
    agent = rp.QRSRM("cvar:0.25", pieces=4, utility_interval=3, network=NETWORK, training=training)
    state = agent.init(SPEC, key=jax.random.key(3))
    mask = jnp.array([True, False, True])
    seen, clock = no_episodes(jnp.array([2], jnp.int32), mask[None]), clock_at(updates / 100)
    state = eqx.tree_at(lambda s: s.episodes, state, seen, is_leaf=lambda x: x is None)
    knots = np.asarray(eqx.filter_jit(agent.refresh)(state, clock).initial_memory.knots)
    if not due:
        assert np.isinf(knots).all()
        return
    features = state.params.features(jnp.int32(2), jnp.zeros(()), jnp.ones(()))
    law = np.asarray(state.params.quantiles(features, midpoints(128)))
    worst = np.asarray(state.params.quantiles(features, 0.25 * midpoints(8)))
    atoms = np.sort(law[:, pick(worst.mean(axis=0), np.asarray(mask))])
    np.testing.assert_allclose(knots, atoms[[7, 15, 23, 31]], rtol=1e-5)  # of 128, at 1/16, 2/16, 3/16 and 4/16


def test_it_learns_to_react_to_its_rewards(unchecked):
    # A first reward of 0 or 20, then 5 for sure or a bet: 20 or −15. The best policy bets after 0 only and is worth
    # 12.5; the best one that does not see the first reward always bets and is worth 11.5.
    outcomes = {
        ("first", "wait"): [(0.5, 0.0, "second"), (0.5, 20.0, "second")],
        ("second", "safe"): [(1.0, 5.0, "end")],
        ("second", "bet"): [(0.8, 20.0, "end"), (0.2, -15.0, "end")],
    }
    mdp, risk = rp.FiniteMDP.from_outcomes(outcomes, start="first"), "0.5*mean+0.5*cvar:0.25"
    assert rp.solve(mdp, risk).value == pytest.approx(12.5)
    training = rp.Training(
        learning_rate=5e-3,
        final_learning_rate=1.1e-3,
        decay_ends=1.0,
        learning_starts=200,
        target_update_interval=50,
        batch_size=16,
        num_quantiles=16,
        num_target_quantiles=16,
        num_action_quantiles=16,
    )
    parts: dict[str, Any] = {"training": training, "exploration": rp.EpsilonGreedy(final_eps=0.2)}
    agent = rp.QRSRM(risk, discount=1.0, pieces=8, network=rp.Network(hidden=(32, 32)), **parts)
    run = rp.train(agent, mdp, steps=1_500, seeds=2)
    assert run.values()[0] == pytest.approx([12.5, 12.5])
    assert run.estimates()[0] == pytest.approx([12.5, 12.5], abs=2.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (lambda text=text: rp.QRSRM(text), rf"^QRSRM optimises risk-averse measures only, got {text}; use TQL for ")
            for text in ("wang:0.5", "pow:1", "cpw:0.71")
        ),
        (lambda: rp.QRSRM("0.5*mean+0.5*wang:1"), r"risk-averse measures only, got 0\.5\*mean\+0\.5\*wang:1; use TQL"),
        (lambda: rp.QRSRM(pieces=0), "pieces must be at least 1, got 0"),
        (lambda: rp.QRSRM(utility_interval=0), "utility_interval must be at least 1, got 0"),
        (
            lambda: rp.train(rp.QRSRM(network=rp.Network(head="table")), "RiskyGrid", steps=10),
            "a table has no rows for the return so far; use head='factored'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
