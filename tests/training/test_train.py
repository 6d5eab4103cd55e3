"""Training as a whole: same seed same bits, one program for many settings, and every agent learns what it should."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.training import fused_loop as loop
from riskpath.training.inputs import as_environment

TINY = rp.Network(hidden=(16,))
FAST = rp.Training(
    learning_starts=60, target_update_interval=20, batch_size=8, online_taus=8, target_taus=8, act_taus=8
)
AGENTS = {
    "IQN": rp.IQN,
    "CVaRDRL": rp.CVaRDRL,
    "TQL joint": lambda *a, **k: rp.TQL(*a, critic="joint", **k),
    "TQL trajectory": lambda *a, **k: rp.TQL(*a, critic="trajectory", **k),
    "TQL convolved": lambda *a, **k: rp.TQL(*a, critic="convolved", **k),
}


def tiny(name: str, level: float = 0.25, **training) -> rp.Agent:
    fast = dataclasses.replace(FAST, **training)
    return AGENTS[name](rp.CVaR(level), network=TINY, training=fast)


def horizon(steps: int) -> rp.FiniteMDP:
    return rp.FiniteMDP.from_outcomes({("s", "stay"): [(1.0, 1.0, "s")]}, "s", horizon=steps)


def parameters(run: rp.Run, lane: int) -> list[np.ndarray]:
    return [np.asarray(x[lane]) for x in jax.tree.leaves(eqx.filter(run.lanes.critic.params, eqx.is_array))]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all((a == b).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["IQN", "TQL joint"])
def test_same_seed_same_bits_and_another_seed_others(name, unchecked):
    runs = [rp.train(tiny(name), "RiskyGrid", steps=200, seeds=2, seed=s) for s in (0, 0, 1)]
    assert runs[0].steps == 200
    assert same(parameters(runs[0], 0), parameters(runs[1], 0))
    assert not same(parameters(runs[0], 0), parameters(runs[0], 1))
    assert not same(parameters(runs[0], 0), parameters(runs[2], 0))


@pytest.mark.parametrize(("kind", "window"), [("lstm", 3), ("transformer", None)])
def test_every_reader_of_histories_trains(kind, window, unchecked):
    network = rp.Network(hidden=(8,), history_size=8, history=kind, window=window)
    run = rp.train(rp.TQL(rp.CVaR(0.25), network=network, training=FAST), "RiskyGrid", steps=120)
    assert run.steps == 120
    assert np.isfinite(run.values()).all()


def test_going_on_equals_going_through(unchecked):
    agent = tiny("TQL joint")
    whole = rp.train(agent, "RiskyGrid", steps=200)
    halves = rp.train(rp.train(agent, "RiskyGrid", steps=120), steps=80)
    assert halves.steps == whole.steps
    assert same(parameters(halves, 0), parameters(whole, 0))


def test_settings_and_problems_are_trained_by_one_program(monkeypatch, unchecked):
    compiled = []
    learn = rp.IQN.learn
    monkeypatch.setattr(rp.IQN, "learn", lambda *a, **k: compiled.append(1) or learn(*a, **k))
    settings = [tiny("IQN", 0.1), tiny("IQN", 0.9), tiny("IQN", 0.1, learning_rate=1e-2)]
    run = rp.train(settings, [rp.RiskyGrid(), rp.RiskyGrid(blue=38.0), rp.RiskyGrid()], steps=300, seeds=2)
    first = len(compiled)
    alone = rp.train([tiny("IQN", 0.3)] * 3, [rp.RiskyGrid(blue=1.0)] * 3, steps=300, seeds=2)
    assert len(compiled) == first  # other levels, other rewards: nothing is compiled again
    assert alone.steps == run.steps == 300
    assert not same(parameters(run, 0), parameters(run, 2))
    assert not same(parameters(run, 0), parameters(run, 4))


@pytest.mark.parametrize(("envs", "train_freq"), [(1, 1), (1, 4), (4, 1), (4, 2)])
def test_the_update_ratio_is_kept(envs, train_freq, unchecked):
    training = rp.Training(
        learning_starts=40,
        target_update_interval=10,
        batch_size=4,
        online_taus=4,
        target_taus=4,
        act_taus=4,
        train_freq=train_freq,
    )
    run = rp.train(rp.IQN(rp.CVaR(0.25), network=TINY, training=training), "RiskyGrid", steps=200, num_envs=envs)
    assert int(run.lanes.critic.updates[0]) * train_freq == run.steps - 40


@pytest.mark.parametrize("name", ["IQN", "CVaRDRL", "TQL convolved"])
def test_masked_actions_are_never_taken_nor_bootstrapped_on(name, unchecked):
    # The tempting action exists only at s1; at s0 it would be best if it were available.
    outcomes = {
        ("s0", "dull"): [(1.0, 0.0, "s1")],
        ("s1", "dull"): [(1.0, 1.0, "end")],
        ("s1", "tempting"): [(1.0, 5.0, "end")],
    }
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "s0")
    run = rp.train(tiny(name, epsilon_end=1.0), mdp, steps=400)
    rows = np.asarray(run.lanes.ring.rows[:400, 0])
    at_start = rows[rows[:, 0] == 0]
    assert (at_start[:, 1] == 0).all()
    assert set(run.policy().estimate("s0")) == {"dull"}
    assert mdp.evaluate(run.policy()).mean in (1.0, 5.0)


@pytest.mark.parametrize("name", ["CVaRDRL", "TQL joint"])
def test_a_learned_policy_goes_through_the_exact_evaluation(name):
    # With the shapes checked: one agent without a history, one with.
    mdp = rp.RiskyGrid().mdp()
    run = rp.train(tiny(name), mdp, steps=100)
    law = mdp.evaluate(run.policy())
    assert run.law().isclose(law)
    assert abs(mdp.simulate(run.policy(), 30).mean() - law.mean) <= 5 * law.std / 30**0.5 + 1e-9


def test_a_reward_that_is_no_number_stops_the_run_and_keeps_what_was_there(unchecked):
    world = as_environment("ThreeState")
    agent = tiny("IQN")
    run = rp.train(agent, world, steps=100)
    before = parameters(run, 0)
    rewards = lambda lanes: lanes.env.tables.reward  # noqa: E731
    run.lanes = eqx.tree_at(rewards, run.lanes, rewards(run.lanes) * jnp.nan)
    with pytest.raises(rp.TrainingStopped, match="a reward was not a finite number between steps 100 and") as stop:
        rp.train(run, steps=100)
    assert stop.value.run.steps == 100
    assert same(parameters(stop.value.run, 0), before)


def test_a_loss_that_is_no_number_stops_the_run_too(unchecked):
    with pytest.raises(rp.TrainingStopped, match=r"the loss was not a finite number .* try a smaller step size"):
        rp.train(tiny("IQN", learning_rate=float("inf")), "RiskyGrid", steps=200)


def test_interruption_returns_what_was_trained_so_far(unchecked):
    def interrupt(run, metrics):
        if run.steps >= 100:
            raise KeyboardInterrupt

    run = rp.train(tiny("IQN"), "RiskyGrid", steps=10_000, progress=interrupt)
    assert 100 <= run.steps < 10_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rp.train(tiny("IQN"), "Chess", steps=10), "unknown environment 'Chess'"),
        (lambda: rp.train(tiny("IQN"), "RiskyGrid", steps=0), "steps must be at least 1, got 0"),
        (lambda: rp.train(tiny("IQN"), "RiskyGrid", steps=10, seeds=0), "seeds must be at least 1, got 0"),
        (lambda: rp.train(tiny("IQN"), 3, steps=10), "cannot train on a int"),
        (lambda: rp.CVaRDRL(rp.Wang(-0.5)), "CVaRDRL optimises CVaR only, got wang:-0.5; use TQL"),
        (
            lambda: rp.TQL(critic="best"),  # pyright: ignore[reportArgumentType]
            "critic must be joint, trajectory or convolved, got 'best'",
        ),
        (lambda: rp.train([tiny("IQN"), tiny("TQL joint")], "RiskyGrid", steps=10), "may differ in float numbers only"),
        (
            lambda: rp.train([tiny("IQN", learning_rate=1), tiny("IQN", learning_rate=2)], "RiskyGrid", steps=10),
            r"may differ in float numbers only \(2.0, not 2\)",
        ),
        (
            lambda: rp.train([tiny("IQN")] * 2, [horizon(3), horizon(2)], steps=10),
            "environments trained together (may differ in numbers only|must have the same sizes)",
        ),
        (lambda: rp.train(tiny("IQN"), rp.RiskyMountainCar(), steps=10), "IQN chooses among numbered actions"),
        (lambda: rp.Network(head="best"), "head must be late or deep or table, got 'best'"),  # pyright: ignore[reportArgumentType]
        (lambda: rp.Network(history="rnn"), "history must be gru or lstm or transformer, got 'rnn'"),  # pyright: ignore[reportArgumentType]
        (lambda: rp.Network(hidden=()), "a network needs at least one hidden layer"),
        (
            lambda: rp.train(tiny("IQN", train_freq=3), "RiskyGrid", steps=10, num_envs=2),
            "train_freq and envs must divide one another, got 3 and 2",
        ),
        (lambda: rp.train([tiny("IQN")] * 2, ["RiskyGrid"] * 3, steps=10), "got 2 agents and 3 environments"),
        (lambda: rp.train([tiny("IQN")] * 2, ["RiskyGrid", "ThreeState"], steps=10), "must have the same sizes"),
        (
            lambda: rp.train(tiny("IQN"), "ThreeState", steps=10).policy(seed=3),
            "there are 1 seeds and 1 settings, got 3",
        ),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


# Short learning runs of networks, fixed seeds; tests/test_tables.py asks for the values, too. The bet is lost with
# probability 0.2, well away from the level 0.1 at which the tail is cut.
BET = rp.ThreeState(p_win=0.8)
LEARN = rp.Training(
    learning_starts=500,
    target_update_interval=50,
    learning_rate=3e-3,
    learning_rate_end=3e-4,
    learning_rate_steps=5000.0,
    epsilon_end=0.3,
    buffer_size=8000,
)


def learned(name: str, problem: rp.ThreeState = BET) -> rp.Run:
    agent = AGENTS[name](rp.CVaR(0.1), discount=1.0, network=rp.Network(hidden=(32,), history_size=32), training=LEARN)
    return rp.train(agent, problem, steps=6000, seeds=2)


@pytest.mark.parametrize("name", ["TQL joint", "TQL trajectory", "TQL convolved"])
def test_tql_learns_to_bet_twice(name, unchecked):
    run = learned(name)
    for seed in range(2):
        assert run.values()[0, seed] == pytest.approx(46.0)
        believed = run.policy(seed).estimate("s0")
        assert believed["risky"] == pytest.approx(46.0, abs=28)
        assert believed["safe"] < 10


def test_iqn_learns_never_to_bet(unchecked):
    run = learned("IQN", rp.ThreeState(p_win=0.6))
    for seed in range(2):
        assert run.values()[0, seed] == pytest.approx(-10.0)
        assert run.policy(seed).estimate("s0")["safe"] == pytest.approx(-10.0, abs=3)


def test_cvar_drl_ends_at_one_of_its_fixed_points(unchecked):
    allowed = {BET.mdp().evaluate([a, b]).mean for a in ("risky", "safe") for b in ("risky", "safe")}
    adaptive = [BET.mdp().evaluate(lambda s, m, r: ("risky" if m is None or r < 0 else "safe", 0)).mean]
    run = learned("CVaRDRL")
    for seed in range(2):
        assert min(abs(run.law(seed).mean - mean) for mean in [*allowed, *adaptive]) < 1e-9


def test_the_lanes_of_a_program_do_not_see_each_other(unchecked):
    pair = rp.train([tiny("IQN", 0.1), tiny("IQN", 0.9)], "RiskyGrid", steps=120)
    other = rp.train([tiny("IQN", 0.1), tiny("IQN", 0.5)], "RiskyGrid", steps=120)
    assert same(parameters(pair, 0), parameters(other, 0))
    assert loop.steps_per_round(pair.agents[0], 1) == 20
