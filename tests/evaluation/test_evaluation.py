"""Evaluations of learned policies, compared with the exact law of their return."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.evaluation.evaluation import Evaluation
from tests.conftest import without_checks

DISCOUNTS, LEVELS = (0.9, 0.5), (0.1, 0.9)
EPISODES = 2_000
"""Of every evaluation, so that they share a program."""
TRAINING = rp.Training(
    learning_starts=60,
    target_update_interval=20,
    batch_size=8,
    num_quantiles=8,
    num_target_quantiles=8,
    num_action_quantiles=8,
    learning_rate=0.03,
    final_learning_rate=0.03,
)


AGENTS = [
    rp.TQL(rp.CVaR(level), discount=discount, network=rp.Network(head="table"), training=TRAINING)
    for level, discount in zip(LEVELS, DISCOUNTS, strict=True)
]


@pytest.fixture(scope="module")
def run() -> rp.Run:
    """Return four lanes with different policies: two settings, two seeds."""
    with without_checks():
        return rp.train(AGENTS, "RiskyGrid", steps=300, seeds=2)


@pytest.fixture(scope="module")
def evaluation(run: rp.Run) -> Evaluation:
    return run.evaluate(episodes=EPISODES)


@pytest.mark.parametrize("kind", ["returns", "discounted"])
@pytest.mark.parametrize("setting", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_returns_follow_the_exact_law(run, evaluation, unchecked, seed, setting, kind):
    sample = getattr(evaluation, kind)[setting, seed]
    law = run.law(seed, setting, DISCOUNTS[setting] if kind == "discounted" else 1.0)
    apart = np.abs(sample[:, None] - law.atoms[None, :])
    assert apart.min(axis=1).max() < 1e-3
    shares = np.bincount(apart.argmin(axis=1), minlength=len(law.atoms)) / len(sample)
    assert (np.abs(shares - law.probs) <= 5 * np.sqrt(law.probs * (1 - law.probs) / len(sample)) + 1e-9).all()
    assert abs(sample.mean() - law.mean) <= 5 * law.std / len(sample) ** 0.5 + 1e-3


def test_values_are_the_risk_of_each_sample(run, evaluation):
    assert evaluation.finished == 1.0
    for setting, level in enumerate(LEVELS):
        for seed in range(2):
            plain, discounted = evaluation.returns[setting, seed], evaluation.discounted[setting, seed]
            assert evaluation.values()[setting, seed] == pytest.approx(rp.CVaR(level).value(plain))
            assert evaluation.values(discounted=True)[setting, seed] == pytest.approx(rp.CVaR(level).value(discounted))
            assert evaluation.values(risk="mean")[setting, seed] == pytest.approx(plain.mean())


def test_intervals_contain_the_exact_mean_over_seeds(run, evaluation, unchecked):
    for discounted in (False, True):
        found = evaluation.risk(discounted=discounted)
        exact = [run.values(gamma if discounted else 1.0)[i].mean() for i, gamma in enumerate(DISCOUNTS)]
        for interval, value, estimate in zip(found, exact, evaluation.values(discounted).mean(axis=1), strict=True):
            assert interval.estimate == pytest.approx(estimate)
            assert interval.low - 1e-3 <= value <= interval.high + 1e-3
    assert [one.estimate for one in evaluation.mean()] == pytest.approx(evaluation.returns.mean(axis=(1, 2)))
    medians = [one.estimate for (one,) in evaluation.quantiles([0.5])]
    assert medians == pytest.approx(np.quantile(evaluation.returns, 0.5, axis=2, method="inverted_cdf").mean(axis=1))


def test_an_evaluation_prints_intervals_and_the_span_of_the_seeds(run, evaluation, unchecked):
    lines, values = str(evaluation).splitlines(), evaluation.values()
    assert len(lines) == 4  # the measure and the mean of both settings
    for line, level, interval, own in zip(lines[::2], LEVELS, evaluation.risk(), values, strict=True):
        span = f" (seeds {own.min():.4g} to {own.max():.4g})"
        assert line.startswith(f"cvar:{level}: undiscounted {interval}{span}, discounted ")
    for line, interval in zip(lines[1::2], evaluation.mean(), strict=True):
        assert line.startswith(f"  mean: undiscounted {interval} (seeds ")
    alone = Evaluation(np.full((1, 1, 3), 48.0), np.full((1, 1, 3), 40.0), [rp.Mean()], 1.0)
    assert str(alone) == "mean: undiscounted 48 [48, 48], discounted 40 [40, 40]"
    same = Evaluation(np.full((1, 1, 3), 48.0), np.full((1, 1, 3), 48.0), [rp.CVaR(0.5)], 1.0, [1.0])
    assert str(same) == "cvar:0.5: undiscounted 48 [48, 48]\n  mean: undiscounted 48 [48, 48]"


def test_zero_episodes_raise_one_line(run):
    with pytest.raises(rp.RiskpathError, match=r"^episodes must be at least 1, got 0"):
        run.evaluate(episodes=0)


def test_lanes_and_episodes_are_independent(run, evaluation, unchecked):
    sample = run.evaluate(episodes=EPISODES).returns
    np.testing.assert_array_equal(sample, evaluation.returns)
    assert (run.evaluate(episodes=EPISODES, seed=1).returns != sample).any()
    yellow = [(seed, lane) for setting in sample for seed, lane in enumerate(setting) if lane.std() > 0]
    pairs = [(a, b) for seed, a in yellow for other, b in yellow if seed < other]
    assert pairs  # policies of both seeds that take risks, or the test is empty
    assert all((a != b).any() for a, b in pairs)  # settings share the randomness of a seed
    assert all((lane[::2] != lane[1::2]).any() for _, lane in yellow)


def test_max_episode_steps_truncates_episodes(run, unchecked):
    cut = run.evaluate(episodes=EPISODES, max_episode_steps=1)
    assert cut.finished == 0.0
    assert set(cut.returns.ravel()) <= {18.0, 98.0, -2.0}  # blue, or yellow that pays or does not pay


def test_run_values_are_exact_and_estimates_are_those_of_the_best_action(run, unchecked):
    start = rp.RiskyGrid().cell(0, 0)
    for setting, level in enumerate(LEVELS):
        for seed in range(2):
            assert run.values()[setting, seed] == pytest.approx(rp.CVaR(level).value(run.law(seed, setting)))
            estimates = run.policy(seed, setting).estimate(start)
            assert run.estimates()[setting, seed] == pytest.approx(max(estimates.values()), abs=1e-3)
            assert run.policy(seed, setting)(start)[0] == max(estimates, key=lambda action: estimates[action])
    assert len({round(float(x), 3) for x in run.estimates().ravel()}) == 4


SELECTED = {
    "a setting": (1, [1], [0, 1, 2]),
    "the last setting": (-1, [2], [0, 1, 2]),
    "a slice": (slice(0, 2), [0, 1], [0, 1, 2]),
    "a list": ([2, 0], [2, 0], [0, 1, 2]),
    "an array": (np.array([2, 0]), [2, 0], [0, 1, 2]),
    "a seed": ((slice(None), 2), [0, 1, 2], [2]),
    "settings and seeds": (([1, 2], slice(1, None)), [1, 2], [1, 2]),
}
RETURNS = np.arange(36.0).reshape(3, 3, 4)
THREE = Evaluation(RETURNS, RETURNS / 2, [rp.Mean(), rp.CVaR(0.1), rp.CVaR(0.5)], 1.0, [0.9, 0.8, 0.7])


@pytest.mark.parametrize(("key", "settings", "seeds"), SELECTED.values(), ids=SELECTED)
def test_selecting_settings_and_seeds(key, settings, seeds):
    chosen = THREE[key]
    np.testing.assert_array_equal(chosen.returns, RETURNS[np.ix_(settings, seeds)])
    np.testing.assert_array_equal(chosen.discounted, RETURNS[np.ix_(settings, seeds)] / 2)
    assert [str(risk) for risk in chosen.risks] == [str(THREE.risks[i]) for i in settings]
    assert chosen.discounts == [(0.9, 0.8, 0.7)[i] for i in settings]
    assert len(chosen) == len(chosen.risk()) == len(settings)


def test_iterating_gives_one_evaluation_for_each_setting():
    assert [one.risk() for one in THREE] == [[interval] for interval in THREE.risk()]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, r"^there is no setting 3; the evaluation has 3$"),
        (-4, r"^there is no setting -4; the evaluation has 3$"),
        ((0, [0, 5]), r"^there is no seed 5; the evaluation has 3$"),
        (1.0, r"^select a setting by a number, a slice or a list of numbers, got 1.0$"),
        ("mean", r"^select a setting by a number, a slice or a list of numbers, got 'mean'$"),
        (
            [True, False, True],
            r"^select a setting by a number, a slice or a list of numbers, got \[True, False, True\]$",
        ),
        ([], r"^select a setting by a number, a slice or a list of numbers, got \[\]$"),
        (slice(3, None), r"^slice\(3, None, None\) selects none of the 3 settings$"),
        ((0, 1, 2), r"^select evaluation\[settings\] or evaluation\[settings, seeds\], got 3 parts$"),
    ],
)
def test_a_wrong_selection_raises_one_line(key, message):
    with pytest.raises(rp.RiskpathError, match=message):
        THREE[key]


def test_measures_may_be_texts(unchecked):
    texts: Any = ["mean", "cvar:0.1", "cvar:0.5"]
    assert Evaluation(RETURNS, RETURNS / 2, texts, 1.0).risk() == THREE.risk()
    one: Any = "cvar:0.1"
    assert Evaluation(RETURNS[1:2], RETURNS[1:2], one, 1.0).risk() == THREE[1].risk()


def test_run_plot_draws_the_curve_or_the_returns(run, unchecked):
    ax = run.plot(kind="histogram", episodes=EPISODES)
    assert len(ax.get_legend_handles_labels()[1]) == 2
    with pytest.raises(
        rp.RiskpathError, match=r"^this run has no learning curve: train with evaluate_every=…, or plot"
    ):
        run.plot(kind="median")
    curve = [{"step": step, "values": [[step, step + 2.0], [0.0, 4.0]]} for step in (10, 20, 30)]
    evaluated = dataclasses.replace(run, curve=[{"step": 5, "seen": 1}, *curve])
    ax = evaluated.plot()
    assert ax.get_legend_handles_labels()[1] == ["cvar:0.1", "cvar:0.9"]
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], [[11.0, 21.0, 31.0], [2.0, 2.0, 2.0]])
    assert len(evaluated.plot(kind="cdf", episodes=EPISODES).lines) == 4  # two laws, two risk values
    assert run.plot(ax, episodes=EPISODES) is ax


@pytest.mark.parametrize(("every", "seen"), [(40, [60, 80, 120, 140]), (70, [80, 140]), (500, [140]), (None, [])])
def test_the_last_policy_is_always_on_the_learning_curve(every, seen, unchecked):
    evaluator = (lambda run: {"at": run.steps}) if every else None
    run = rp.train(AGENTS, "RiskyGrid", steps=140, seeds=2, evaluate_every=every, evaluator=evaluator)
    assert [point["at"] for point in run.curve] == seen
    assert run.finished
    assert repr(run) == "<Run of TQL on RiskyGrid: settings 2, seeds 2, steps 140>"


@pytest.mark.parametrize("stopped", [60, 80, 100])
def test_the_learning_curve_is_evenly_spaced_after_warm_up_and_resuming(stopped, tmp_path, unchecked):
    def interrupt(run, numbers):
        if run.steps == stopped:
            raise KeyboardInterrupt

    evaluator = lambda run: {"at": run.steps}
    run = rp.train(AGENTS, "RiskyGrid", steps=180, seeds=2, evaluate_every=30, evaluator=evaluator, progress=interrupt)
    run.save(tmp_path / "run")
    resumed = rp.train(rp.load(tmp_path / "run"), evaluator=evaluator)
    # Warm-up ends at step 60 and a chunk has 20 steps: evaluations follow the first chunks from 90, 120, 150, 180.
    assert [point["step"] for point in resumed.curve] == [60, 100, 120, 160, 180]
