"""After training: candidates, other measures and the frontier of one run."""

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.abilities import can_serve
from riskpath.agents.adaptive.elimination import HELD_OUT, blocks_of_selection, eliminate, rounds
from riskpath.report import served
from riskpath.report.gather_record import gather
from riskpath.training.selection import episodes_of, select_candidates
from tests.training.fakes import fake_run
from tests.training.sizes import TINY_ADAPTIVE

EPISODES = 100
"""Of every roll-out here, so that they share programs; for the same reason there are two or four lanes."""
TINY = {**TINY_ADAPTIVE, "selection_episodes": EPISODES}
pytestmark = pytest.mark.usefixtures("unchecked_module")


@pytest.fixture(scope="module")
def run() -> rp.Run:
    return rp.train(rp.Adaptive("cvar:0.25", **TINY), "RiskyGrid", steps=100, seeds=2)


def same(one: Any, other: Any) -> bool:
    """Tell whether two trees have the same numbers."""
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def weights(run: rp.Run) -> np.ndarray:
    return np.asarray(run.lanes.agent_state.params.plan.weights)


def test_the_candidate_with_the_best_held_out_episodes_is_played(run):
    assert weights(run).shape == (2, 13)
    assert (np.sort(weights(run), axis=1) == np.eye(13)[12]).all()
    assert len(run.policy().members()) == 1


def test_a_selection_shows_its_progress(run):
    shown = []
    lanes = select_candidates(run, lambda *counts: shown.append(counts))
    assert shown == [(block, 37) for block in range(1, 38)]
    assert same(lanes.agent_state.params.plan.weights, run.lanes.agent_state.params.plan.weights)


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [(13, [(13, 1), (4, 3), (2, 6)]), (9, [(9, 1), (3, 3), (2, 4)]), (6, [(6, 1), (2, 3)]), (2, [(2, 1)]), (1, [])],
)
def test_the_best_third_plays_as_many_episodes_as_all_before(candidates, expected):
    assert list(rounds(candidates)) == expected
    assert blocks_of_selection(candidates) == sum(left * blocks for left, blocks in expected)


def test_elimination_finds_the_best_candidate_of_each_lane():
    means = np.array([[0.0, 0.05, -0.3, 0.1, -0.1], [0.2, 0.2, 0.1, 0.0, 0.2], [0.0, -0.3, 0.1, -0.2, 0.001]])
    played = []

    def play(candidate, seed):
        played.append((candidate.tolist(), seed))
        shared, own = np.random.default_rng(seed).normal(size=400), np.random.default_rng(seed + 10**6).normal(size=400)
        return means[np.arange(3), candidate][:, None] + shared + 0.3 * own * (candidate[:, None] == 4)

    best, first = eliminate([rp.CVaR(0.2)] * 3, 5, np.array([0, 1, 2]), play)
    assert best.tolist() == [3, 1, 2]  # of equal candidates the preferred one
    assert first.shape == (3, 5, 400)
    assert played[:5] == [([number] * 3, HELD_OUT) for number in range(5)]
    later = played[5:]
    assert [seed - HELD_OUT for _, seed in later] == [1, 1, 2, 2]  # two fresh blocks for each of the two that are left
    assert [{candidate[lane] for candidate, _ in later} for lane in range(3)] == [
        {0, 3},
        {1, 2},
        {2, 0},
    ]  # 0 plays like 1


def test_the_preferred_candidate_is_played_unless_another_one_is_better_by_more_than_the_error():
    errors = []
    for gain in (0.0, 0.004, 0.02):

        def play(candidate, seed, gain=gain):
            rng = np.random.default_rng(seed)
            shared, own = rng.normal(size=500), 0.1 * rng.normal(size=500)  # the error of 1,500 episodes is 0.006
            return shared[None] + (candidate[:, None] == 2) * (gain + own - own.mean())

        errors.append(eliminate([rp.CVaR(0.5)], 4, np.array([1]), play)[0].item())
    assert errors == [1, 1, 2]


def test_copies_of_one_policy_do_not_crowd_a_better_one_out():
    played = []

    def play(candidate, seed):
        played.append(candidate.item())
        lucky = seed == HELD_OUT  # in the first round the better candidate, 7, has worse episodes than the others
        tail, top = np.random.default_rng(seed).normal(size=(2, 500))
        returns = np.where(tail < 0, tail + (candidate.item() == 7) * (-0.2 if lucky else 0.3), 5.0 + abs(top))
        return (returns + (returns > 3) * candidate.item() * 0.1)[
            None
        ]  # candidates differ in returns that do not count

    best, _ = eliminate([rp.CVaR(0.25)], 13, np.array([2]), play)
    assert best.item() == 7
    assert set(played[-12:]) == {2, 7}


@pytest.mark.parametrize(
    ("steps", "wanted", "on_host", "expected"),
    [
        (100, None, False, 0),  # a small training does not wait
        (2_339, None, False, 0),
        (2_340, None, False, 200),  # a short training: the fewest that say anything; 26 blocks of 1,800 steps
        (117_000, None, False, 1_000),  # twice the steps: 26 blocks of 1,000 episodes of 9 steps
        (9_000_000, None, False, 10_000),
        (100, None, True, 0),  # an environment outside of the program: not more than a quarter
        (936_000, None, True, 1_000),
        (100, 50, True, 50),  # what the user wants
        (900_000, 0, False, 0),
    ],
)
def test_the_number_of_held_out_episodes_follows_from_the_training(steps, wanted, on_host, expected):
    spec = SimpleNamespace(max_episode_steps=9)
    assert episodes_of(fake_run(steps=steps, spec=spec, sources=[0] * on_host), 26, wanted) == expected


def test_a_saved_run_goes_on_as_if_no_candidate_had_been_chosen(run, tmp_path):
    agent = rp.Adaptive("cvar:0.25", **TINY)
    short = rp.train(agent, "RiskyGrid", steps=60, seeds=2)
    others = jnp.asarray(np.tile(np.eye(13, dtype=np.float32)[3], (2, 1)))  # whatever was chosen
    short.lanes = eqx.tree_at(lambda lanes: lanes.agent_state.params.plan.weights, short.lanes, others)
    short.save(tmp_path / "run")
    longer = rp.train(rp.load(tmp_path / "run"), steps=40)
    assert same(longer.lanes.store, run.lanes.store)
    assert same(longer.lanes.agent_state.params, run.lanes.agent_state.params)


def test_the_law_of_a_mixture_is_the_mixture_of_laws(run):
    # Two first goals, so far apart that they lead to different actions or to none.
    shares, first = np.zeros((2, 2, 13), np.float32)
    shares[:, [0, 2]], first[:, [0, 2]] = (0.25, 0.75), (-300.0, 300.0)
    places = lambda lanes: (lanes.agent_state.params.plan.weights, lanes.agent_state.params.plan.first)
    mixed = eqx.tree_at(places, run.lanes, (jnp.asarray(shares), jnp.asarray(first)))
    other = rp.Run(run.agents, run.environments, 2, mixed)
    candidates = other.policy().members()
    assert [weight for weight, _ in candidates] == pytest.approx([0.25, 0.75])
    laws = [rp.RiskyGrid().mdp().evaluate(policy) for _, policy in candidates]
    law = other.law()
    assert law.isclose(rp.Law.mix(laws, [0.25, 0.75]))
    returns = np.concatenate([other.evaluate(EPISODES, seed).returns[0, 0] for seed in range(20)])
    assert returns.mean() == pytest.approx(law.mean, abs=5 * law.std / 2_000**0.5 + 1e-3)


@pytest.mark.long  # tests/agents/test_adaptive.py serves other levels as well
def test_one_training_serves_every_level(run):
    other = run.serve("cvar:0.1", rp.CVaR(0.9))
    assert [str(agent.risk) for agent in other.agents] == ["cvar:0.1", "cvar:0.9"]
    first = np.asarray(other.lanes.agent_state.params.plan.first).reshape(2, 2, 13)
    assert (first[0, :, 0] <= first[1, :, 0]).all()  # a higher level has a higher goal
    before = eqx.filter(run.lanes.agent_state.params.critic, eqx.is_array)
    for seed in range(2):
        alone = run.policy(seed, risk="cvar:0.1")
        assert rp.RiskyGrid().mdp().evaluate(alone).isclose(other.law(seed, 0))
    assert same(before, eqx.filter(run.lanes.agent_state.params.critic, eqx.is_array))
    assert run.evaluate(EPISODES, risk="cvar:0.9").risks == [rp.CVaR(0.9)]


def test_the_frontier_has_a_row_for_each_level_beside_the_exact_one(run):
    found = run.frontier([1.0, 0.1], episodes=EPISODES)
    rows = found.rows()
    assert [row["level"] for row in rows] == [0.1, 1.0]
    assert [row["best cvar"] for row in rows] == pytest.approx([79.875, 213.0])
    assert rows[1]["cvar"] == pytest.approx(rows[1]["mean"])
    assert found.values.shape == found.means.shape == (2, 2)


@pytest.mark.long  # the frontier is asked for above
def test_a_report_shows_the_frontier_of_an_agent_that_serves_several_levels(run, monkeypatch):
    # Here, because the test before has the programs.
    monkeypatch.setattr(served, "LEVELS", (0.1, 1.0))
    monkeypatch.setattr(served, "EPISODES", EPISODES)
    record = gather(run)
    assert (record.title, record.finished, record.steps) == ("Adaptive on RiskyGrid", True, run.steps)
    assert record.frontier is not None
    assert record.frontier.best_values == pytest.approx([79.875, 213.0])
    assert np.shape(record.frontier.values) == np.shape(record.frontier.means) == (2, 2)
    assert record.frontier.values[1] == pytest.approx(record.frontier.means[1])  # level 1 is the mean
    (setting,) = record.settings
    assert setting.values == pytest.approx(run.values()[0])
    assert setting.quantiles is not None
    assert np.isfinite(setting.quantiles.believed).all()


@pytest.mark.parametrize(
    ("trained", "other", "serves"),
    [
        ("cvar:0.25", "cvar:0.01", True),
        ("cvar:0.25", "mean", True),
        ("mean", "cvar:0.5", True),
        ("cvar:0.25", "wang:-0.5", False),
        ("cvar:0.25", "0.5*mean+0.5*cvar:0.25", False),
        ("0.5*mean+0.5*cvar:0.25", "0.5*mean+0.5*cvar:0.25", True),
        ("0.5*mean+0.5*cvar:0.25", "0.2*mean+0.8*cvar:1.0", True),
        ("wang:-0.5", "wang:-0.5", True),
        ("wang:-0.5", "wang:-0.25", False),
    ],
)
def test_which_measures_a_trained_critic_serves(trained, other, serves):
    assert can_serve(rp.Adaptive(trained), rp.parse_risk(other)) is serves


@pytest.mark.long  # tests/agents/test_adaptive.py does, too
def test_a_run_of_several_levels_serves_others_by_its_first_one(run):
    # Two settings of one seed are as many lanes as two seeds of one setting: the same programs train and play them.
    both = rp.train([rp.Adaptive(f"cvar:{level}", **TINY) for level in (0.25, 0.5)], "RiskyGrid", steps=100)
    served = both.serve("cvar:0.1", "cvar:0.9")
    alone = run.serve("cvar:0.1")
    np.testing.assert_array_equal(served.values()[0], alone.values()[0, :1])
    np.testing.assert_allclose(served.estimates()[0], alone.estimates()[0, :1], rtol=1e-4)
    second = both.policy(setting=1, risk="cvar:0.1").state.params.critic
    own = jax.tree.map(lambda x: x[1], eqx.filter(both.lanes.agent_state.params.critic, eqx.is_array))
    assert same(own, eqx.filter(second, eqx.is_array))
    with pytest.raises(rp.RiskpathError, match="no seed 0 of 1, setting 2 of 2"):
        both.policy(setting=2, risk="cvar:0.1")


def test_other_agents_and_measures_are_refused_in_one_line(run):
    line = r"trained for cvar:0.25 and cannot serve wang:-0.5: rp.Adaptive trained for a CVaR serves all its levels"
    with pytest.raises(rp.RiskpathError, match=line):
        run.policy(risk="wang:-0.5")
    with pytest.raises(rp.RiskpathError, match="a CVaR level must be in"):
        run.frontier([0.0])
    with pytest.raises(rp.RiskpathError, match="Adaptive has its own head and no 'table'"):
        rp.Adaptive(network=rp.Network(head="table"))
    with pytest.raises(rp.RiskpathError, match="needs a share of CVaR above 0"):
        rp.Adaptive("1.0*mean+0.0*cvar:0.1")
