"""Adaptive agents: contexts and utilities, losses against transcriptions, and what they learn."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.adaptive_agent import LINEAR, both_features, features, nearly_squared
from riskpath.agents.adaptive.context_agent import clock_of
from riskpath.agents.adaptive.continuous_actions import DISTANCES, around
from riskpath.agents.adaptive.goals import NEARBY, OWN, TIE, WIDE, Goal, GoalObjective, Goals
from riskpath.agents.adaptive.return_critic import cell_quantiles, cells
from riskpath.agents.adaptive.utilities import (
    ATOMS,
    CANDIDATES,
    KNOTS,
    RAMP,
    RATE,
    Floor,
    Laws,
    Standing,
    UtilityObjective,
    influence_table,
    interpolate,
    piecewise,
    slopes,
)
from riskpath.agents.agent import AgentState, act_greedily
from riskpath.agents.episodes import PATH, Units, no_episodes
from riskpath.nn.context_network import NUMBER_WAVES
from riskpath.risk.compose import as_distortion
from riskpath.types import Segment, Transition
from tests.agents.clocks import clock_at
from tests.agents.test_losses import BOX, SPEC, box_parts, box_window, loss_of, window

NETWORK = rp.Network(hidden=(8, 8))
SCALE, KAPPA = 0.3, 0.7 * 0.3
FEW: dict[str, Any] = {"num_quantiles": 6, "num_action_quantiles": 7, "kappa": 0.7, "reward_scale": SCALE}
TRAINING = rp.Training(batch_size=2, learning_rate=0.0, final_learning_rate=0.0, decay_ends=1.0, **FEW)
UNITS = Units(
    jnp.float32(1 / SCALE), jnp.float32(0.0), jnp.float32(-1 / SCALE), jnp.float32(1 / SCALE), jnp.zeros(PATH)
)
LEVELS, PROBS = (np.asarray(x) for x in cells(6))
MEASURES = ["mean", "cvar:0.2", "0.4*mean+0.6*cvar:0.3", "wang:-0.75", "wang:0.75", "pow:-2.0", "cpw:0.71"]


# Functions of JAX are called in programs below: alone, each of their operations would be a program.
@eqx.filter_jit
def utility_of(form: Any, context: Any, z: Any, plan: Any) -> jax.Array:
    return form.utility(context, z, plan, UNITS)


def test_cells_are_a_partition_that_is_finer_at_both_ends():
    levels, probs = (np.asarray(x) for x in cells(32))
    assert probs.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(levels, np.cumsum(probs) - probs / 2, atol=1e-6)
    np.testing.assert_allclose(probs, probs[::-1], atol=1e-6)
    assert probs[0] < 0.1 * probs[16]
    assert (np.diff(probs[:16]) > 0).all()


def test_quantiles_of_cells_are_those_of_the_law():
    atoms = jnp.asarray(np.random.default_rng(0).permutation(6).astype(np.float32))
    taus = np.array([0.01, 0.1, 0.3, 0.5, 0.77, 0.999], np.float32)
    law = rp.Law(np.asarray(atoms, float), PROBS.astype(float))
    found = np.asarray(jax.jit(cell_quantiles)(atoms[:, None], jnp.asarray(taus)))[:, 0]
    np.testing.assert_allclose(found, [law.quantile(float(tau)) for tau in taus])


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_the_goal_recursion_holds_for_every_return(discount):
    # min(r + γZ − c, 0) = γ min(Z − c′, 0) with c′ = (c − r)/γ: what is best after a step is what was best before it.
    form = GoalObjective(rp.CVaR(0.2))
    z, c, r = jnp.linspace(-3.0, 4.0, 29), Goal(jnp.float32(1.3)), 2.5
    before = utility_of(form, c, SCALE * (r + discount * z), form.plan())
    after = utility_of(form, form.advance(c, jnp.float32(r), discount), SCALE * z, form.plan())
    np.testing.assert_allclose(before - TIE * SCALE * r, discount * after, atol=1e-5)


@pytest.mark.parametrize("discount", [1.0, 0.8])
@pytest.mark.parametrize("risk", ["wang:-0.75", "cpw:0.71"])
def test_the_utility_is_of_the_whole_return_at_every_step(risk, discount):
    form = UtilityObjective(as_distortion(risk))
    atoms = jnp.asarray(np.sort(np.random.default_rng(0).normal(size=(CANDIDATES, ATOMS)).astype(np.float32), axis=1))
    plan = Laws(atoms, jnp.eye(CANDIDATES)[0], jnp.zeros(CANDIDATES), jnp.ones(()))
    z, now, r = jnp.linspace(-3.0, 4.0, 29), Standing(jnp.int32(2), jnp.float32(1.0), jnp.float32(discount**2)), 0.7
    before = utility_of(form, now, SCALE * (r + discount * z), plan)
    after = utility_of(form, form.advance(now, jnp.float32(r), discount), SCALE * z, plan)
    np.testing.assert_allclose(before, discount * after, atol=1e-5)


@pytest.mark.parametrize("text", MEASURES)
def test_the_utility_of_a_law_is_the_slope_of_the_measure(text):
    # E_F[u] − E_G[u] is the first-order change of β from F to G: compare with a small step towards G.
    risk, rng = as_distortion(text), np.random.default_rng(3)
    first = np.sort(rng.normal(size=ATOMS))
    second = np.sort(rng.uniform(first[0], first[-1], size=ATOMS))
    step, laws = 1e-4, [rp.Law(atoms, np.full(ATOMS, 1 / ATOMS)) for atoms in (first, second)]
    change = (float(risk.value(rp.Law.mix(laws, [1 - step, step]))) - float(risk.value(laws[0]))) / step
    utility = jax.jit(lambda z, knots: piecewise(z, knots, slopes(risk, ATOMS)))
    u = np.asarray(utility(np.array([first, second], np.float32), first.astype(np.float32)))
    assert u[1].mean() - u[0].mean() == pytest.approx(change, rel=0.15, abs=0.05)


@pytest.mark.parametrize("text", ["evar:0.3", "mmv:0.1", "semidev:0.5", "0.5*mean+0.5*evar:0.3", "entropic:0.5"])
def test_the_table_of_a_utility_is_the_slope_of_the_measure(text):
    risk, rng = rp.parse_risk(text), np.random.default_rng(3)
    first, second = np.sort(rng.normal(size=ATOMS)), rng.uniform(-1.5, 1.5, size=ATOMS)
    step, laws = 1e-4, [rp.Law(atoms, np.full(ATOMS, 1 / ATOMS)) for atoms in (first, second)]
    change = (float(risk.value(rp.Law.mix(laws, [1 - step, step]))) - float(risk.value(laws[0]))) / step
    knots = jnp.linspace(-4.0, 4.0, KNOTS)
    both = jnp.asarray([first, second], jnp.float32)
    u = eqx.filter_jit(
        lambda laws: interpolate(laws, knots, influence_table(risk, knots, laws[0], UNITS) * UNITS.unit)
    )(both)
    assert float(u[1].mean() - u[0].mean()) == pytest.approx(change, rel=0.02, abs=0.01)


@pytest.mark.parametrize(
    ("risk", "candidates"), [("reach:1", 1), ("entropic:0.1", 1), ("evar:0.1", CANDIDATES), ("worst", CANDIDATES)]
)
def test_every_measure_has_a_finite_utility_that_rises(risk, candidates):
    form = UtilityObjective(rp.parse_risk(risk))
    z, plan = jnp.linspace(-3.0, 3.0, 61), form.plan()
    assert form.candidates == candidates == plan.atoms.shape[0]
    u = np.asarray(utility_of(form, form.first(plan, jnp.int32(candidates - 1)), z, plan))
    assert np.isfinite(u).all()
    assert (np.diff(u) > 0).all()


def test_candidates_for_a_floor_go_from_the_objective_to_the_measure_with_the_floor():
    form = UtilityObjective(rp.Mean(), Floor(rp.CVaR(0.1), 0.0))
    plan, z = form.plan(), jnp.linspace(-1.0, 1.0, 41)
    rise = [np.diff(np.asarray(utility_of(form, form.first(plan, jnp.int32(m)), z, plan))) for m in range(6, 12)]
    curvature = [float(one.max() / one.min()) for one in rise]
    assert curvature[0] == pytest.approx(1.0, abs=1e-3)
    assert curvature == sorted(curvature)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rp.Adaptive("mean", subject_to={"cvar:0.1": 1.0, "var:0.1": 2.0}), "a learning agent has one floor"),
        (lambda: rp.Adaptive("mean", subject_to="cvar:0.1"), "subject_to needs RISK=FLOOR"),
        (lambda: rp.Adaptive("mean", subject_to={"cvar:0.1": float("inf")}), "must be a finite number, got inf"),
        (
            lambda: rp.AdaptivePPO("mean", subject_to={"evar:0.1": 1.0}),
            "use Adaptive for mean with a floor under evar:0.1",
        ),
        (lambda: rp.Adaptive(rp.Utility(np.tanh)), "must work on JAX arrays to be learned"),
        (lambda: rp.IQN("evar:0.1"), "a learning agent needs a measure that weighs outcomes by rank"),
    ],
)
def test_a_measure_or_floor_that_cannot_be_trained_is_refused(make, message):
    with pytest.raises(rp.RiskpathError, match=message):
        make()


@pytest.mark.parametrize("text", MEASURES)
def test_the_first_candidate_starts_with_the_mean(text):
    form = UtilityObjective(as_distortion(text))
    z = jnp.linspace(-1.0, 1.0, 9)  # the range of returns
    u = form.utility(form.first(form.plan(), jnp.int32(0)), SCALE * z, form.plan(), UNITS)
    slope = np.diff(np.asarray(u)) / (SCALE * (z[1] - z[0]))
    np.testing.assert_allclose(slope, slope[0], rtol=1e-3)
    assert 0.1 < slope[0] < 10


@eqx.filter_jit
def refreshed(form: Any, law: Any, progress: Any) -> Any:
    """Return the first laws of the candidates, and the plan when the critic predicts this one."""
    plan = form.plan()
    after = form.refresh(plan, lambda context: (law, jnp.zeros(())), UNITS, progress)
    return form._atoms(plan, UNITS, form._slope), after


@pytest.mark.parametrize(("progress", "rate"), [(0.0, 0.0), (RAMP / 2, RATE / 2), (RAMP, RATE), (1.0, RATE)])
def test_candidates_stay_with_their_first_law_and_follow_the_critic_later(progress, rate):
    form, law = UtilityObjective(rp.Wang(-0.75)), np.linspace(0.0, 1.0, ATOMS, dtype=np.float32)
    first, after = refreshed(form, jnp.asarray(SCALE * law), jnp.float32(progress))
    first = np.asarray(first)
    value = form.risk.value(rp.Law(SCALE * law.astype(float), np.full(ATOMS, 1 / ATOMS)))
    np.testing.assert_allclose(after.values, float(value), rtol=1e-4)
    np.testing.assert_allclose(after.atoms, first + rate * (law[None] - first), atol=1e-5)


def twin(critics: Any, number: int) -> Any:
    """Return one of the two critics of `Adaptive`, which are stacked."""
    return jax.tree.map(lambda x: x[number] if eqx.is_array(x) else x, critics)


def by_hand(predicted, target, utility, extent: float = 1.0) -> float:
    """Return the smooth quantile loss with weighted atoms, and the pseudo-Huber error of the expected utility.

    The error is relative to the extent of utilities: that of all returns, 2 units here; 1 for goals.
    """
    total = 0.0
    for theta, tau in zip(predicted, LEVELS, strict=True):
        for y, prob in zip(target, PROBS, strict=True):
            u = y - theta
            huber = 0.5 * u * u / KAPPA if abs(u) <= KAPPA else abs(u) - 0.5 * KAPPA
            total += prob * ((tau - 0.5) * u + 0.5 * huber)
    error = sum(p * (utility(a) - utility(b)) for p, a, b in zip(PROBS, predicted, target, strict=True)) / extent
    return total / 6 + 0.5 * 2 * 16**2 * (np.sqrt(1 + (error / 16) ** 2) - 1)


def extent_of(risk: str) -> float:
    return 2.0 if risk.startswith("wang") else 1.0


def candidate_utility(risk: rp.DistortionMeasure, candidate: int, so_far: float, weight: float, z: float) -> float:
    """Return u(so_far + weight z)/weight of a candidate that still has its first law, with returns from −1 to 1."""
    low, width = (-1.0, 2.0) if candidate == 5 else (-1.0 + 0.5 * (candidate - 1), 0.5)
    knots = low + width * (np.arange(ATOMS) + 0.5) / ATOMS
    levels = np.concatenate([[0.0], (np.arange(ATOMS) + 0.5) / ATOMS, [1.0]])
    slope = np.diff(np.asarray(risk.weight(levels))) / np.diff(levels)
    if candidate == 0:
        below = np.argmin(np.abs(np.log(slope)))
        knots = np.concatenate([np.full(below, -3.0), np.full(ATOMS - below, 3.0)])
    edges = np.concatenate([[-1e3], knots, [1e3]])
    at = lambda x: sum(s * (np.clip(x, a, b) - a) for s, a, b in zip(slope, edges[:-1], edges[1:], strict=True))
    whole = so_far + weight * z
    return float(at(whole) - at(knots[0]) + TIE * whole) / weight


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize(
    ("risk", "length"),
    [
        ("0.4*mean+0.6*cvar:0.3", 3),
        pytest.param("wang:-0.75", None, marks=pytest.mark.long),
        pytest.param("cvar:0.2", None, marks=pytest.mark.long),
        pytest.param("cvar:0.2", 3, marks=pytest.mark.long),
        pytest.param("0.4*mean+0.6*cvar:0.3", None, marks=pytest.mark.long),
        pytest.param("wang:-0.75", 3, marks=pytest.mark.long),
    ],
)
def test_the_loss_is_its_equation(risk, length, terminated):
    network = rp.Network(hidden=(8, 8), history_size=4, window=length)
    agent = rp.Adaptive(risk, 0.9, network, TRAINING, contexts=1, utility_weight=0.25)  # √0.25 halfway
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample = window(np.random.default_rng(0), terminated)
    if length:
        sample = eqx.tree_at(
            lambda w: (w.observation, w.prev_action, w.valid),
            sample,
            (sample.observation[1:], sample.prev_action[1:], sample.valid[1:]),
        )
    part = sample if length else sample.transition
    # The same sample twice, one half of the batch for each critic: the loss is the mean of both.
    keys, losses = jax.random.split(jax.random.key(7)), []
    step, utility = sample.transition, measure_utility(risk)
    for own in (0, 1):
        context, after = relabelled(agent.objective, step, state.params.plan, jax.random.split(keys[own])[0])
        mine = twin(state.params.critic, own)
        online = law_of(agent, state, mine, part, after, 1)
        best = best_of(online, lambda z, after=after: utility(after, z))
        evaluated = law_of(agent, state, twin(other.params.critic, 1 - own), part, after, 1)[:, best]
        target = SCALE * 1.5 + (0.0 if terminated else 0.9) * evaluated
        predicted = law_of(agent, state, mine, part, context, 0)[:, 2]
        losses.append(by_hand(predicted, target, lambda z, context=context: utility(context, z), extent_of(risk)))
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert loss_of(agent, state, part, jax.random.key(7), 2, done=0.5) == pytest.approx(np.mean(losses), rel=1e-3)


def measure_utility(risk: str) -> Any:
    """Return the utility of a return to go in a context, as it is written in the equations."""

    def utility(context: Any, z: float) -> float:
        if isinstance(context, Goal):
            mean = {"cvar:0.2": 0.0}.get(risk, 0.4 * 0.3 / 0.6) + TIE
            return mean * z - max(SCALE * float(context.goal) - z, 0.0)
        return candidate_utility(
            as_distortion(risk), int(context.candidate), SCALE * float(context.so_far), float(context.weight), z
        )

    return utility


@eqx.filter_jit  # one program, not one for each operation
def predicted_law(form: Any, state: AgentState, critic: Any, sample: Any, context: Any, after: int) -> jax.Array:
    now, later = both_features(critic.inputs, state, sample)
    seen = later[after - 1] if after else now
    return critic(seen, form.encode(context, UNITS, jnp.zeros(())))


def law_of(agent: Any, state: AgentState, critic: Any, sample: Any, context: Any, after: int) -> np.ndarray:
    """Return the law of every action before a sample (0), or after its first, second, … step."""
    return np.asarray(predicted_law(agent.objective, state, critic, sample, context, after))


@eqx.filter_jit
def relabelled(form: Any, step: Transition, plan: Any, key: Any) -> Any:
    """Return one context before a step, and the one after it."""
    return jax.tree.map(lambda x: x[0], form.relabel(step, 1, plan, UNITS, 0.9, key=key))


def best_of(law: np.ndarray, utility: Any) -> int:
    """Return the action with the best expected utility; action 1 is masked."""
    values = [sum(p * utility(z) for p, z in zip(PROBS, law[:, action], strict=True)) for action in range(3)]
    return max((0, 2), key=lambda action: values[action])


@pytest.mark.parametrize(("progress", "most"), [(0.0, 3), (0.5, 2), (1.0, 1)])
@pytest.mark.parametrize("risk", ["cvar:0.2", pytest.param("wang:-0.75", marks=pytest.mark.long)])
def test_the_loss_over_several_steps_is_its_equation(risk, progress, most):
    agent = rp.Adaptive(risk, 0.9, NETWORK, TRAINING, n_steps=3, contexts=1, utility_weight=0.25)
    state, other = (agent.init(SPEC, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    rewards, seen, utility = [1.5, -2.0, 0.5], [1, 3, 4, 0], measure_utility(risk)
    keys, losses, lasts = jax.random.split(jax.random.key(7)), [], []
    critics = [twin(state.params.critic, own) for own in (0, 1)]

    def stored(second: int) -> Segment:
        """Return the third step of an episode and two more; the second action is given, the third is never best."""
        count = jnp.arange(3, dtype=jnp.int32)
        so_far = 4.0 + np.array([0.0, 0.9**3 * rewards[1], 0.9**3 * rewards[1] + 0.9**4 * rewards[2]], np.float32)
        no, mask = jnp.zeros(3, bool), jnp.tile(jnp.array([True, False, True]), (3, 1))
        actions, places = jnp.array([2, second, 1], jnp.int32), jnp.array(seen, jnp.int32)
        parts = (places[:3], actions, jnp.asarray(rewards), places[1:], mask, no, no, 2 + count, jnp.asarray(so_far))
        steps = jax.vmap(lambda *each: Transition(*each, extras=()))(*parts)
        return Segment(steps, jnp.ones(3, bool))

    def contexts_of(own: int) -> tuple[Any, list[Any]]:
        """Return the context before the first step, and those after each step."""
        before, after = relabelled(agent.objective, stored(0).first, state.params.plan, jax.random.split(keys[own])[0])
        afters = [after]
        for reward in rewards[1:]:
            afters.append(agent.objective.advance(afters[-1], jnp.float32(reward), 0.9))
        return before, afters

    def best_after(own: int, step: int, sample: Segment) -> int:
        _, afters = contexts_of(own)
        law = law_of(agent, state, critics[own], sample, afters[step], step + 1)
        return best_of(law, lambda z: utility(afters[step], z))

    sample = stored(best_after(0, 0, stored(0)))  # the second action is the best one for the first critic
    for own in (0, 1):
        before, afters = contexts_of(own)
        last = int(most > 1 and int(sample.steps.action[1]) == best_after(own, 0, sample))
        best = best_after(own, last, sample)
        future = law_of(agent, state, twin(other.params.critic, 1 - own), sample, afters[last], last + 1)[:, best]
        target = SCALE * sum(0.9**i * rewards[i] for i in range(last + 1)) + 0.9 ** (last + 1) * future
        predicted = law_of(agent, state, critics[own], sample, before, 0)[:, 2]
        weight = 0.25**progress / 0.5  # by_hand has one of a half
        quantiles, whole = (
            by_hand(predicted, target, lambda z: 0.0),
            by_hand(predicted, target, lambda z, before=before: utility(before, z), extent_of(risk)),
        )
        losses.append(quantiles + weight * (whole - quantiles))
        lasts.append(last)
    assert lasts[0] == int(most > 1)
    assert loss_of(agent, state, sample, jax.random.key(7), 2, done=progress) == pytest.approx(
        np.mean(losses), rel=1e-3
    )


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("length", [None, pytest.param(4, marks=pytest.mark.long)])
def test_the_loss_of_continuous_actions_is_its_equation(length, terminated):
    network = rp.Network(hidden=(8, 8), history_size=5, window=length, normalize_observations=False)
    parts = {"network": network, **box_parts("lower_mean", num_quantiles=6)}
    agent = rp.AdaptiveContinuous("cvar:0.2", 0.9, contexts=1, utility_weight=0.25, **parts)  # √0.25 halfway
    state, other = (agent.init(BOX, key=jax.random.key(i)) for i in (0, 1))
    state = eqx.tree_at(lambda s: s.target_params, state, other.params)
    sample, key = box_window(terminated), jax.random.key(7)
    part, step = sample if length else sample.transition, sample.transition
    sample_key, step_key = jax.random.split(key)
    for _ in range(3):  # one step of the critics, one sample, one context
        (step_key,) = jax.random.split(step_key, 1)
    step_key, _ = jax.random.split(step_key)  # the other one draws the targets inside of cells
    context, after = relabelled(agent.objective, step, state.params.plan, jax.random.split(sample_key, 1)[0])
    utility = lambda z: TIE * z - max(SCALE * float(context.goal) - z, 0.0)

    @eqx.filter_jit
    def output_of(network, following: bool, *action) -> jax.Array:
        described = agent.objective.encode(after if following else context, UNITS, jnp.zeros(()))
        now, later = both_features(network.inputs, state, part)
        assert len(later) == 1
        return network(later[0] if following else now, jnp.concatenate([described, *action]))

    output = lambda network, following, *action: np.asarray(output_of(network, following, *map(jnp.asarray, action)))

    noise = np.clip(0.3 * np.asarray(jax.random.normal(step_key, (1,))), -0.75, 0.75)
    action = np.clip(np.tanh(output(other.params.actor, True)) + noise, -1, 1).astype(np.float32)
    future = sum(output(z, True, action) for z in other.params.critic) / 2
    target = SCALE * float(step.reward) + (0.0 if terminated else 0.9) * future
    expected = sum(by_hand(output(z, False, step.action), target, utility) for z in state.params.critic)
    assert loss_of(agent, state, part, key, done=0.5) == pytest.approx(expected, rel=1e-3)


def with_path(agent: Any, state: AgentState) -> AgentState:
    """Return a state that knows 10 steps as the longest episode, in which 1 is earned in each step on average."""
    episodes = no_episodes(jnp.zeros((1, *BOX.observation_shape)), jnp.ones((1, SPEC.num_actions), bool), 10)
    known: dict[str, Any] = {"count": 50.0, "mean": 10.0, "low": 4.0, "high": 16.0}
    path = 10.0 * (jnp.arange(PATH, dtype=jnp.float32) + 0.5) / PATH
    known = {name: jnp.float32(value) for name, value in known.items()}
    episodes = dataclasses.replace(episodes, **known, path=path, visits=jnp.ones(PATH))
    return dataclasses.replace(state, episodes=episodes)


@eqx.filter_jit
def described(agent: Any, state: AgentState, context: Any, time: Any) -> Any:
    """Return the return that is usual from a time on, and what networks see of a context."""
    return agent.units(state).expected(clock_of(state, time)), agent.encode(state, context, time)


@pytest.mark.parametrize(("time", "expected"), [(0, 10.0), (3, 7.0), (9, 1.0), (10, 0.08), (12, 0.08)])
def test_a_context_is_also_seen_relative_to_what_is_usual_at_its_time(time, expected):
    # 0.08: the middle of the last one of 64 parts of an episode is the latest time at which the path is known.
    goals, utilities = (rp.Adaptive(risk, network=NETWORK, training=TRAINING) for risk in ("cvar:0.2", "wang:-0.75"))
    for agent in (goals, utilities):
        state = with_path(agent, agent.init(SPEC, key=jax.random.key(0)))
        context: Any = (
            Goal(jnp.float32(6.0)) if agent is goals else Standing(jnp.int32(1), jnp.float32(6.0), jnp.ones(()))
        )
        usual, x = map(np.asarray, described(agent, state, context, jnp.int32(time)))
        assert float(usual) == pytest.approx(expected, abs=2e-3)
        assert x.shape == (agent.objective.context_size,)
        usual = expected if agent is goals else 10.0 - expected
        reach = 4.0 / SCALE
        assert x[0] == pytest.approx(np.clip((6.0 - usual) / reach, -1, 1), abs=1e-3)
        assert x[NUMBER_WAVES] == pytest.approx(6.0 / reach, rel=1e-5)
        assert x[2 * NUMBER_WAVES] == pytest.approx(6.0 / (32.0 / SCALE), rel=1e-5)


def test_networks_see_the_share_of_the_time_that_has_passed():
    agent = rp.Adaptive("cvar:0.2", network=NETWORK, training=TRAINING)
    state = agent.init(SPEC, key=jax.random.key(0))
    inputs, memory = twin(state.params.critic, 0).inputs, state.initial_memory

    @eqx.filter_jit
    def seen_at(state: AgentState, time: Any) -> jax.Array:
        step = rp.TimeStep(jnp.int32(1), jnp.zeros(()), jnp.ones(3, bool), jnp.int32(0), time)
        return features(inputs, state, memory, step)

    def seen(state: AgentState, time: int) -> np.ndarray:
        return np.asarray(seen_at(state, jnp.int32(time)))

    np.testing.assert_array_equal(seen(state, 0), seen(state, 5))  # nothing is known about the length of an episode
    state = with_path(agent, state)
    assert np.abs(seen(state, 0) - seen(state, 5)).max() > 0.01
    np.testing.assert_array_equal(seen(state, 10), seen(state, 15))
    step = dataclasses.replace(window(np.random.default_rng(0), False).transition, next_observation=jnp.int32(1))
    # Learning sees what acting sees, before and after a step.
    now, later = eqx.filter_jit(both_features)(inputs, state, step)
    np.testing.assert_allclose(now, seen(state, 2), atol=1e-6)
    np.testing.assert_allclose(later[0], seen(state, 3), atol=1e-6)


def test_both_critics_need_equal_halves_of_a_batch():
    with pytest.raises(rp.RiskpathError, match="batch_size of Adaptive must be even, half for each critic: got 7"):
        rp.Adaptive(training=rp.Training(batch_size=7))


def test_it_acts_by_the_mean_of_both_critics():
    agent = rp.Adaptive("cvar:0.2", network=NETWORK, training=TRAINING)
    state = agent.init(SPEC, key=jax.random.key(0))
    critics, taus = [twin(state.params.critic, own) for own in (0, 1)], jnp.asarray(LEVELS)

    @eqx.filter_jit
    def outputs(agent: Any, state: AgentState) -> Any:
        encoded = agent.encode(state, state.initial_memory.context, jnp.int32(0))
        laws = [z(z.inputs(jnp.int32(1), jnp.zeros(())), encoded) for z in critics]
        first = SPEC.first_time_step(jnp.int32(1), jnp.ones(3, bool))
        found = agent.quantiles(state, state.initial_memory, first, taus)
        output = act_greedily(agent, state, state.initial_memory, first, key=jax.random.key(0))
        return laws, found, cell_quantiles((laws[0] + laws[1]) / 2, taus), output.action

    laws, found, wanted, action = jax.tree.map(np.asarray, outputs(agent, state))
    assert np.abs(laws[0] - laws[1]).max() > 0.01
    np.testing.assert_allclose(found, wanted / SCALE, rtol=1e-4)
    utility = PROBS @ (TIE * (law := sum(laws) / 2) - np.maximum(0.0 - law, 0.0))  # the first goal is 0
    assert int(action) == int(np.argmax(utility))


@pytest.mark.parametrize("own", [[0.0], [0.9], [-1.0], [0.2, -0.3, 0.1]])
def test_actions_are_tried_around_the_own_one(own):
    own = np.array(own, np.float32)
    tried = np.asarray(around(jnp.asarray(own)))
    np.testing.assert_array_equal(tried[0], own)
    assert np.abs(tried).max() <= 1.0
    at_zero = np.asarray(around(jnp.zeros(len(own))))
    np.testing.assert_allclose(np.linalg.norm(at_zero[1:], axis=1), 2 * DISTANCES, rtol=1e-5)
    np.testing.assert_allclose(at_zero[1:].sum(axis=0), 0.0, atol=1e-6)  # both directions
    np.testing.assert_allclose(tried, np.clip(own + at_zero, -1.0, 1.0), atol=1e-6)


def test_a_continuous_action_is_the_best_of_those_around_the_actor():
    agent = rp.AdaptiveContinuous("cvar:0.2", 0.9, NETWORK, **box_parts("lower_mean", num_quantiles=6))
    state = agent.init(BOX, key=jax.random.key(3))
    step, taus = box_window(False).transition, jnp.asarray(LEVELS)

    @eqx.filter_jit
    def outputs(agent: Any, state: AgentState) -> Any:
        context = agent.objective.encode(state.initial_memory.context, agent.units(state), jnp.zeros(()))
        seen = lambda z: both_features(z.inputs, state, step)[0]
        tried = around(jnp.tanh(state.params.actor(seen(state.params.actor), context)))
        law = lambda action: sum(z(seen(z), jnp.concatenate([context, action])) for z in state.params.critic) / 2
        first = BOX.first_time_step(step.observation, jnp.ones((0,), bool))
        found = agent.quantiles(state, state.initial_memory, first, taus)[:, 0] / agent.units(state).unit
        output = act_greedily(agent, state, state.initial_memory, first, key=jax.random.key(0))
        return tried, jax.vmap(law)(tried), found, output.action

    tried, laws, found, action = outputs(agent, state)
    values = [PROBS @ (TIE * law - np.maximum(0.0 - law, 0.0)) for law in np.asarray(laws)]  # the first goal is 0
    best = int(np.argmax(values))
    assert best != 0
    np.testing.assert_allclose(action, tried[best], atol=1e-6)
    np.testing.assert_allclose(found, jax.jit(cell_quantiles)(laws[best], taus), rtol=1e-4)


@pytest.mark.parametrize(
    ("repeats", "progress", "weight"),
    [(0.0, 0.0, 0.03), (0.0, 1.0, 0.03), (0.3, 0.0, 1.0), (0.02, 0.5, 4.0), (1.0, 1.0, 16.0), (0.01, 1.0, 0.48**0.5)],
)
def test_the_squared_error_weighs_little_where_returns_are_continuous(repeats, progress, weight):
    agent = rp.Adaptive("cvar:0.2", network=NETWORK, training=TRAINING, utility_weight=16.0)
    state = agent.init(SPEC, key=jax.random.key(0))
    assert float(agent.squared_weight(state, clock_at(0.5))) == pytest.approx(4.0)  # as if returns repeat
    episodes = no_episodes(jnp.zeros((1,), jnp.int32), jnp.ones((1, 3), bool))
    state = dataclasses.replace(
        state,
        episodes=dataclasses.replace(episodes, repeats=jnp.float32(repeats)),
    )
    assert float(agent.squared_weight(state, clock_at(progress))) == pytest.approx(weight, rel=1e-4)


@pytest.mark.parametrize(
    ("returns", "probs", "within"),
    [
        ((3.0, -0.2), (0.88, 0.12), 0.02),
        ((1.0, 0.0, -6.0), (0.4, 0.5, 0.1), 0.05),
        ((-200.0, 1.0), (1e-4, 0.9999), 0.02),
    ],
)
def test_the_squared_error_learns_the_mean_of_skewed_returns(returns, probs, within):
    y, p = np.array(returns), np.array(probs)
    predicted = np.linspace(-1.0, 3.0, 4_001)
    loss = np.asarray(nearly_squared(jnp.asarray(predicted[:, None] - y), LINEAR)) @ p
    mean = p @ np.clip(y, -LINEAR, None)  # a single catastrophe does not decide
    assert predicted[np.argmin(loss)] == pytest.approx(mean, abs=within)


@pytest.mark.parametrize(("low", "high", "wanted"), [(-10.0, 10.0, 10.0), (0.0, 0.5, 1.0)])
def test_errors_of_utilities_are_relative_to_the_range_of_returns(low, high, wanted):
    units = dataclasses.replace(UNITS, unit=jnp.float32(2.0), low=jnp.float32(low), high=jnp.float32(high))
    law, aim, probs = jnp.linspace(-2.0, 1.0, 6), jnp.linspace(-1.0, 3.0, 6), jnp.asarray(PROBS)
    for form, scale in [(UtilityObjective(rp.Wang(-0.75)), wanted), (GoalObjective(rp.CVaR(0.1)), 1.0)]:
        plan = form.plan()
        context = form.first(plan, jnp.int32(0))
        plain = probs @ (form.utility(context, law, plan, units) - form.utility(context, aim, plan, units))
        assert float(form.error(context, law, aim, probs, plan, units)) == pytest.approx(float(plain) / scale)


def test_first_goals_are_the_quantiles_of_levels_and_others_close_to_the_own_one():
    returns = np.linspace(float(UNITS.low), float(UNITS.high), 2_001)
    earned = jnp.asarray(returns, jnp.float32)
    shortfall = lambda goal: jnp.mean(jnp.maximum(goal - earned, 0.0))
    root = lambda context: (jnp.zeros(()), -shortfall(context.goal) / UNITS.unit)
    form = GoalObjective(rp.CVaR(0.2))
    found = np.asarray(eqx.filter_jit(lambda: form.refresh(form.plan(), root, UNITS, jnp.float32(0.5)).first)())
    assert len(found) == form.candidates
    width = float(UNITS.high - UNITS.low)
    np.testing.assert_allclose(
        found[[0, 9, 10, 11, 12]], np.quantile(returns, [0.2, 0.14, 0.28, 0.1, 0.4]), atol=width / 50
    )
    expected = sorted(sign / part for part in (8, 16, 32, 64) for sign in (-1, 1))
    np.testing.assert_allclose(np.sort(found[1:9] - found[0]) / float(UNITS.unit), expected, atol=1e-5)


def test_relabelled_goals_are_those_that_the_rewards_so_far_leave():
    form, firsts = GoalObjective(rp.CVaR(0.2)), jnp.arange(5.0).at[0].set(-2.0)
    plan = Goals(firsts, jnp.eye(5)[0], jnp.array([1.0, 3.0]))
    step = window(np.random.default_rng(0), False).transition  # R_{0:2} = 4, r_2 = 1.5
    relabel = eqx.filter_jit(lambda key: form.relabel(step, 400, plan, UNITS, 0.9, key=key))
    now, after = relabel(jax.random.key(0))
    first = np.asarray(after.goal) * 0.9**3 + 4.0
    np.testing.assert_allclose(now.goal, 1.5 + 0.9 * np.asarray(after.goal), rtol=1e-5)
    useful = (first > 0.8 - 1e-3) & (first < 3.2 + 1e-3)
    own = np.abs(first + 2.0) < 3 * NEARBY / SCALE
    assert own.mean() == pytest.approx(OWN + WIDE * 6 * NEARBY / 2, abs=0.08)
    assert useful.mean() == pytest.approx(1 - OWN - WIDE + WIDE * 2.4 * SCALE / 2, abs=0.08)
    elsewhere = first[~useful & ~own]
    assert 0 < len(elsewhere) < 400 * 1.5 * WIDE
    assert -1 / SCALE - 1e-3 < elsewhere.min() < elsewhere.max() < 1 / SCALE + 1e-3


def test_training_episodes_start_in_useful_contexts():
    draws = (jnp.arange(60.0) + 0.5) / 60
    plan = Goals(jnp.zeros(5), jnp.eye(5)[0], jnp.array([1.0, 3.0]))
    goals = jax.jit(jax.vmap(lambda u: GoalObjective(rp.CVaR(0.2)).explore(plan, UNITS, u).goal))(draws)
    assert 0.8 < float(goals.min()) < 0.9
    assert 3.1 < float(goals.max()) < 3.2
    form = UtilityObjective(rp.Wang(-0.75))
    candidate_of = jax.jit(jax.vmap(lambda u: form.explore(form.plan(), UNITS, u).candidate))
    candidates = candidate_of(np.append(draws, np.float32(1 - 2**-23)))
    np.testing.assert_array_equal(np.bincount(candidates), [10, 10, 10, 10, 10, 11])


@pytest.mark.parametrize("risk", ["cvar:0.1", "wang:0.75"])
def test_an_episode_is_played_by_the_candidates_with_their_weights(risk):
    agent = rp.Adaptive(risk, network=NETWORK, training=TRAINING)
    state = agent.init(SPEC, key=jax.random.key(0))
    if agent.objective.candidates == len(state.params.plan.weights) and hasattr(state.params.plan, "first"):
        state = eqx.tree_at(lambda s: s.params.plan.first, state, jnp.arange(5.0))
    state = agent.with_weights(state, jnp.array([0.0, 0.25, 0.0, 0.75, 0.0]))
    first = SPEC.first_time_step(jnp.int32(0), jnp.ones(3, bool))
    play = jax.jit(
        jax.vmap(lambda key: act_greedily(agent, state, state.initial_memory, first, key=key).memory.context)
    )
    context = play(jax.random.split(jax.random.key(1), 400))
    candidate = np.asarray(context.goal if isinstance(context, Goal) else context.candidate)
    assert set(candidate.tolist()) == {1, 3}
    assert (candidate == 3).mean() == pytest.approx(0.75, abs=0.08)


LEARN: dict[str, Any] = {
    "network": rp.Network(hidden=(32,)),
    "training": rp.Training(
        learning_rate=3e-3, final_learning_rate=6e-5, batch_size=64, num_quantiles=12,
        learning_starts=300, target_update_interval=50, buffer_size=3_000,
    ),
    "exploration": rp.EpsilonGreedy(final_eps=0.1, fraction=0.6),
    "selection_episodes": 300,
}  # fmt: skip
# Shares or bonds for two years; the first year decides, by chance, what shares will pay in the second.
BONDS = 5.0
YEARS = {
    ("now", "shares"): [(0.6, 20.0, "boom"), (0.2, 20.0, "slump"), (0.2, -20.0, "slump")],
    ("now", "bonds"): [(0.6, BONDS, "boom"), (0.4, BONDS, "slump")],
    ("boom", "shares"): [(0.9, 40.0, "end"), (0.1, -10.0, "end")],
    ("boom", "bonds"): [(1.0, BONDS, "end")],
    ("slump", "shares"): [(0.5, 40.0, "end"), (0.5, -30.0, "end")],
    ("slump", "bonds"): [(1.0, BONDS, "end")],
}


# Shares pay alike in both years: at the level 0.25 the best policy buys them until one year was good. It is worth 25,
# and the best one that does not see its rewards 19.8. A coin, which says nothing, makes the sizes those of YEARS.
SHARES = [(0.8, 40.0), (0.1, -5.0), (0.1, -15.0)]
ALIKE = {
    ("now", "shares"): [(prob, gain, "heads") for prob, gain in SHARES],
    ("now", "bonds"): [(0.5, BONDS, "heads"), (0.5, BONDS, "tails")],
    **{(side, "shares"): [(prob, gain, "end") for prob, gain in SHARES] for side in ("heads", "tails")},
    **{(side, "bonds"): [(1.0, BONDS, "end")] for side in ("heads", "tails")},
}


@pytest.mark.parametrize("trained", [0.2, pytest.param(0.75, marks=pytest.mark.long)])
@pytest.mark.usefixtures("unchecked")
def test_it_reaches_what_no_policy_without_rewards_reaches_and_serves_other_levels_as_well(trained):
    mdp, levels = rp.FiniteMDP.from_outcomes(YEARS, start="now"), (0.2, 0.75)
    optima = [rp.solve(mdp, rp.CVaR(level)).value for level in levels]
    agents = [rp.Adaptive(rp.CVaR(level), **LEARN) for level in (trained, 0.25)]
    problems = [mdp, rp.FiniteMDP.from_outcomes(ALIKE, start="now")]
    run = rp.train(agents, problems, steps=2_000)  # two problems, one program
    np.testing.assert_allclose(run.values()[:, 0], [optima[levels.index(trained)], 25.0])
    served = run.serve(*(rp.CVaR(level) for level in levels))  # by the first agent; as many lanes as the run has
    np.testing.assert_allclose(served.values()[:, 0], optima)
    episodes = run.lanes.agent_state.episodes
    assert episodes is not None
    assert np.abs(run.estimates() - run.values())[0, 0] < 0.05 * float(episodes.unit[0])


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_it_reaches_what_no_policy_without_rewards_reaches_on_the_grid():
    run = rp.train(rp.Adaptive("cvar:0.1", **LEARN), "RiskyGrid", steps=4_000, seeds=2)
    np.testing.assert_allclose(run.values(), 79.875)  # TQL's best is 72.375
