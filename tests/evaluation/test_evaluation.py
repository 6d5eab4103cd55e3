"""Episodes of learned policies against the exact law of their return."""

import jaxtyping
import numpy as np
import pytest

import riskpath as rp
from riskpath.evaluation.evaluation import Evaluation

DISCOUNTS, LEVELS = (0.9, 0.5), (0.1, 0.9)
TRAINING = rp.Training(
    learning_starts=60,
    target_update_interval=20,
    batch_size=8,
    online_taus=8,
    target_taus=8,
    act_taus=8,
    learning_rate=0.03,
    learning_rate_end=0.03,
)


AGENTS = [
    rp.TQL(rp.CVaR(level), discount=discount, network=rp.Network(head="table"), training=TRAINING)
    for level, discount in zip(LEVELS, DISCOUNTS, strict=True)
]


@pytest.fixture(scope="module")
def run() -> rp.Run:
    """Four lanes that do different things: two settings, two seeds."""
    jaxtyping.config.update("jaxtyping_disable", True)  # the fixture `unchecked` is for one test only
    trained = rp.train(AGENTS, "RiskyGrid", steps=300, seeds=2)
    jaxtyping.config.update("jaxtyping_disable", False)
    return trained


@pytest.fixture(scope="module")
def evaluation(run: rp.Run) -> Evaluation:
    return run.evaluate(episodes=2_000)


@pytest.mark.parametrize("kind", ["returns", "discounted"])
@pytest.mark.parametrize("setting", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_follows_the_exact_law(run, evaluation, unchecked, seed, setting, kind):
    sample = getattr(evaluation, kind)[setting, seed]
    law = run.law(seed, setting, DISCOUNTS[setting] if kind == "discounted" else 1.0)
    apart = np.abs(sample[:, None] - law.atoms[None, :])
    assert apart.min(axis=1).max() < 1e-3
    shares = np.bincount(apart.argmin(axis=1), minlength=len(law.atoms)) / len(sample)
    assert (np.abs(shares - law.probs) <= 5 * np.sqrt(law.probs * (1 - law.probs) / len(sample)) + 1e-9).all()
    assert abs(sample.mean() - law.mean) <= 5 * law.std / len(sample) ** 0.5 + 1e-3


def test_values_are_the_measure_of_each_sample(run, evaluation):
    assert evaluation.finished == 1.0
    for setting, level in enumerate(LEVELS):
        for seed in range(2):
            plain, discounted = evaluation.returns[setting, seed], evaluation.discounted[setting, seed]
            assert evaluation.values()[setting, seed] == pytest.approx(rp.CVaR(level).value(plain))
            assert evaluation.values(discounted=True)[setting, seed] == pytest.approx(rp.CVaR(level).value(discounted))
            assert evaluation.values(risk=rp.Mean())[setting, seed] == pytest.approx(plain.mean())


def test_intervals_are_of_the_mean_over_seeds_and_hold_its_exact_value(run, evaluation, unchecked):
    for discounted in (False, True):
        found = evaluation.risk(discounted=discounted)
        exact = [run.values(gamma if discounted else 1.0)[i].mean() for i, gamma in enumerate(DISCOUNTS)]
        for interval, value, estimate in zip(found, exact, evaluation.values(discounted).mean(axis=1), strict=True):
            assert interval.estimate == pytest.approx(estimate)
            assert interval.low - 1e-3 <= value <= interval.high + 1e-3
    assert [one.estimate for one in evaluation.mean()] == pytest.approx(evaluation.returns.mean(axis=(1, 2)))
    medians = [one.estimate for (one,) in evaluation.quantiles([0.5])]
    assert medians == pytest.approx(np.quantile(evaluation.returns, 0.5, axis=2, method="inverted_cdf").mean(axis=1))


def test_it_prints_an_interval_and_the_span_of_the_seeds(run, evaluation, unchecked):
    lines, values = str(evaluation).splitlines(), evaluation.values()
    assert len(lines) == 2
    for line, level, interval, own in zip(lines, LEVELS, evaluation.risk(), values, strict=True):
        span = f" (seeds {own.min():.4g} to {own.max():.4g})"
        assert line.startswith(f"cvar:{level}: undiscounted {interval}{span}, discounted ")
    alone = Evaluation(np.full((1, 1, 3), 48.0), np.full((1, 1, 3), 40.0), [rp.Mean()], 1.0)
    assert str(alone) == "mean: undiscounted 48 [48, 48], discounted 40 [40, 40]"


def test_no_episodes_are_refused(run):
    with pytest.raises(rp.RiskpathError, match=r"^episodes must be at least 1, got 0"):
        run.evaluate(episodes=0)


def test_lanes_and_episodes_are_drawn_independently(run, evaluation, unchecked):
    sample = run.evaluate(episodes=2_000).returns
    np.testing.assert_array_equal(sample, evaluation.returns)
    assert (run.evaluate(episodes=2_000, seed=1).returns != sample).any()
    yellow = [lane for lane in sample.reshape(4, -1) if lane.std() > 0]
    assert len(yellow) >= 2  # else this test says nothing
    assert all((a != b).any() for i, a in enumerate(yellow) for b in yellow[:i])
    assert all((lane[::2] != lane[1::2]).any() for lane in yellow)


def test_a_limit_cuts_episodes_off(run, unchecked):
    cut = run.evaluate(episodes=50, limit=1)
    assert cut.finished == 0.0
    assert set(cut.returns.ravel()) <= {18.0, 98.0, -2.0}  # blue, or yellow with and without luck


def test_values_are_exact_and_estimates_are_those_of_the_best_action(run, unchecked):
    start = rp.RiskyGrid().cell(0, 0)
    for setting, level in enumerate(LEVELS):
        for seed in range(2):
            assert run.values()[setting, seed] == pytest.approx(rp.CVaR(level).value(run.law(seed, setting)))
            believed = run.policy(seed, setting).estimate(start)
            assert run.estimates()[setting, seed] == pytest.approx(max(believed.values()), abs=1e-3)
            assert run.policy(seed, setting)(start)[0] == max(believed, key=lambda action: believed[action])
    assert len({round(float(x), 3) for x in run.estimates().ravel()}) == 4


@pytest.mark.parametrize(("every", "seen"), [(40, [60, 80, 120, 140]), (70, [80, 140]), (500, [140]), (None, [])])
def test_the_last_policy_is_always_evaluated(every, seen, unchecked):
    watch = (lambda run: {"at": run.steps}) if every else None
    run = rp.train(AGENTS, "RiskyGrid", steps=140, seeds=2, evaluate_every=every, evaluator=watch)
    assert [point["at"] for point in run.curve] == seen
    assert run.finished
    assert repr(run) == "<Run of TQL on RiskyGrid: settings 2, seeds 2, steps 140>"


@pytest.mark.parametrize("stopped", [60, 80, 100])
def test_after_a_long_warm_up_the_curve_goes_on_evenly_also_when_resumed(stopped, tmp_path, unchecked):
    def interrupt(run, numbers):
        if run.steps == stopped:
            raise KeyboardInterrupt

    watch = lambda run: {"at": run.steps}  # noqa: E731
    run = rp.train(AGENTS, "RiskyGrid", steps=180, seeds=2, evaluate_every=30, evaluator=watch, progress=interrupt)
    run.save(tmp_path / "run")
    resumed = rp.train(rp.load(tmp_path / "run"), evaluator=watch)
    # Warm-up ends at 60, then it is looked at after every 20: at the first of them from 90, 120, 150, 180 on.
    assert [point["step"] for point in resumed.curve] == [60, 100, 120, 160, 180]
