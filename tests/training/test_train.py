"""Training as a whole: same seed same bits, one program for many settings, and every agent learns what it should."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.training import fused_loop
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start
from tests.training.fakes import Counting
from tests.training.sizes import TINY_IQN

TINY, FAST, CALM = (TINY_IQN[part] for part in ("network", "training", "exploration"))
AGENTS = {
    "IQN": rp.IQN,
    "CVaRDRL": rp.CVaRDRL,
    "QRSRM": rp.QRSRM,
    "TQL joint": lambda *a, **k: rp.TQL(*a, critic="joint", **k),
    "TQL trajectory": lambda *a, **k: rp.TQL(*a, critic="trajectory", **k),
    "TQL convolved": lambda *a, **k: rp.TQL(*a, critic="convolved", convolved_taus=8, **k),
}


def tiny(name: str, level: float = 0.25, exploration: rp.EpsilonGreedy = CALM, **training) -> rp.Agent:
    fast = dataclasses.replace(FAST, **training)
    return AGENTS[name](rp.CVaR(level), network=TINY, training=fast, exploration=exploration)


def horizon(steps: int) -> rp.FiniteMDP:
    return rp.FiniteMDP.from_outcomes({("s", "stay"): [(1.0, 1.0, "s")]}, "s", horizon=steps)


@pytest.mark.parametrize(
    ("agent", "times"), [("PPO", [0, 1, 2, 3, 4, 5]), pytest.param("ReturnCapping", [4] * 6, marks=pytest.mark.long)]
)
def test_short_rollouts_see_all_times_of_episodes_of_a_fixed_length(agent, times):
    training = rp.RolloutTraining(length=2, epochs=1, minibatches=1)
    learner = getattr(rp, agent)(network=rp.Network(hidden=(2,)), training=training, discount=1.0)
    run = rp.train(learner, horizon(6), steps=6 * 10, num_envs=6)
    assert sorted(np.asarray(run.lanes.time_step.time)[0].tolist()) == times
    episodes = run.lanes.agent_state.episodes
    assert episodes is not None
    assert (float(episodes.low[0]), float(episodes.high[0])) == (6.0, 6.0)  # an episode that was cut does not count
    assert (np.asarray(run.lanes.return_so_far) == np.asarray(run.lanes.time_step.time)).all()


def parameters(run: rp.Run, lane: int) -> list[np.ndarray]:
    return [np.asarray(x[lane]) for x in jax.tree.leaves(eqx.filter(run.lanes.agent_state.params, eqx.is_array))]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all((a == b).all() for a, b in zip(first, second, strict=True))


# Those that learn below, and QRSRM in tests/agents/test_qrsrm.py, are asked for exact values that are known.
@pytest.mark.parametrize(
    "name", ["IQN", *(pytest.param(name, marks=pytest.mark.long) for name in ("CVaRDRL", "QRSRM", "TQL joint"))]
)
def test_a_learned_policy_goes_through_the_exact_evaluation(name):
    # With the shapes checked. It comes first, so that it traces the program that most of the tests below train.
    mdp = rp.RiskyGrid().mdp()
    run = rp.train(tiny(name), "RiskyGrid", steps=100, seeds=2)
    law = mdp.evaluate(run.policy())
    assert run.law().isclose(law)
    assert abs(mdp.simulate(run.policy(), 30).mean() - law.mean) <= 5 * law.std / 30**0.5 + 1e-9


@pytest.mark.parametrize("name", ["IQN", pytest.param("TQL joint", marks=pytest.mark.long)])
def test_same_seed_same_bits_and_another_seed_others(name, unchecked):
    runs = [rp.train(tiny(name), "RiskyGrid", steps=200, seeds=2, seed=s) for s in (0, 0, 1)]
    assert runs[0].steps == 200
    assert same(parameters(runs[0], 0), parameters(runs[1], 0))
    assert not same(parameters(runs[0], 0), parameters(runs[0], 1))
    assert not same(parameters(runs[0], 0), parameters(runs[2], 0))


def test_a_run_on_a_problem_with_features_evaluates_saves_and_loads(tmp_path, unchecked, untrained):
    # tests/nn/test_observation_encoder.py and tests/agents/test_actor_critic.py learn from vectors.
    problem = rp.make("Liquidation", lots=3, steps=2)
    run = rp.train(tiny("IQN", 0.5), problem, steps=80, seeds=2)
    assert run.spec.observation_shape == (3,)
    policy, start = run.policy(0), next(iter(problem.mdp().start))
    assert policy(start)[0] in range(4)
    law = problem.mdp().evaluate(policy)
    assert rp.CVaR(0.5).value(law) == pytest.approx(run.values()[0, 0])
    sample = run.evaluate(400).returns[0, 0]
    assert abs(sample.mean() - law.mean) < 5 * law.std / 20 + 1e-4
    run.save(tmp_path / "run")
    loaded = rp.load(tmp_path / "run")
    assert (loaded.values() == run.values()).all()
    assert loaded.policy(1).estimate(start) == run.policy(1).estimate(start)


class Numbered(rp.Environment):
    """A user's environment, with plain numbers and a word among its fields."""

    length: int = 3
    fee: float = 0.5
    name: str = "toll"

    @property
    def spec(self) -> rp.EnvSpec:
        return rp.EnvSpec(num_actions=2, observation_shape=(1,), max_episode_steps=self.length)

    def reset(self, key):
        return jnp.zeros((1,)), jnp.zeros(())

    def step(self, key, state, action):
        state = state + 1
        reward = jnp.where(action == 1, -self.fee, 0.0)
        return state[None], state, reward, state >= self.length, jnp.zeros((), bool)

    def action_mask(self, state):
        return jnp.ones((2,), bool)


def test_an_environment_may_have_plain_numbers_as_fields(unchecked):
    lanes = start([Counting()] * 2, [Numbered()] * 2, seeds=1, num_envs=2, seed=0)
    after, _ = eqx.filter_eval_shape(fused_loop.chunk, lanes, Numbered().spec, jnp.asarray(1))
    assert jax.tree.structure(after) == jax.tree.structure(lanes)


def test_going_on_equals_going_through(unchecked):
    # A run with a history and one with members do the same in test_checkpoint.py and test_selection.py.
    agent = tiny("IQN")
    whole = rp.train(agent, "RiskyGrid", steps=200, seeds=2)
    halves = rp.train(rp.train(agent, "RiskyGrid", steps=120, seeds=2), steps=80)
    assert halves.steps == whole.steps
    assert same(parameters(halves, 0), parameters(whole, 0))


def test_settings_and_problems_are_trained_by_one_program(monkeypatch, unchecked):
    compiled = []
    update = rp.IQN.update
    monkeypatch.setattr(rp.IQN, "update", lambda *a, **k: compiled.append(1) or update(*a, **k))
    low, high, fast = tiny("IQN", 0.1), tiny("IQN", 0.9), tiny("IQN", 0.1, learning_rate=1e-2)
    grid, blue = rp.RiskyGrid(), rp.RiskyGrid(blue=38.0)
    first = rp.train([low, high], [grid, blue], steps=300)
    once = len(compiled)
    second = rp.train([low, fast], [grid, grid], steps=300)
    third = rp.train(tiny("IQN", 0.3), rp.RiskyGrid(blue=1.0), steps=300, seeds=2)
    assert len(compiled) == once  # other levels, rates and rewards, seeds for settings: nothing is compiled again
    assert first.steps == second.steps == third.steps == 300
    assert same(parameters(first, 0), parameters(second, 0))
    assert not same(parameters(first, 0), parameters(first, 1))
    assert not same(parameters(second, 0), parameters(second, 1))


# Updates of an iteration: one for `train_freq` steps. They divide the interval, are a multiple of it, or neither.
@pytest.mark.parametrize(
    ("num_envs", "train_freq", "learning_starts", "interval"),
    [
        (8, 2, 40, 6),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                (1, 4, 0, 5),
                (12, 2, 0, 3),
                (1, 1, 40, 20),
                (4, 1, 0, 20),
                (4, 2, 40, 20),
                (2, 1, 0, 6),
                (6, 1, 0, 3),
                (6, 1, 0, 4),
                (1, 1, 0, 5),
            )
        ),
    ],
)
@pytest.mark.parametrize("on_host", [False, pytest.param(True, marks=pytest.mark.long)])
def test_updates_are_as_many_as_planned_and_target_networks_move_after_every_interval(
    num_envs, train_freq, learning_starts, interval, on_host, unchecked
):
    sizes = {"learning_starts": learning_starts, "train_freq": train_freq, "target_update_interval": interval}
    agent = Counting(training=dataclasses.replace(FAST, **sizes, target_update_rate=0.5))
    run = rp.train(agent, "CartPole-v1" if on_host else "RiskyGrid", steps=240, num_envs=num_envs)
    updates, expected = int(run.lanes.clock.updates), 0.0
    assert run.lanes.agent_state.params.tolist() == [updates]
    assert updates * train_freq == run.steps - learning_starts
    assert run.steps >= 240
    for done in range(interval, updates + 1, interval):
        expected += 0.5 * (done - expected)
    assert float(run.lanes.agent_state.target_params[0]) == pytest.approx(expected)


def test_an_interrupted_run_ends_as_the_uninterrupted_one_with_schedules_of_its_plan(unchecked):
    def interrupt(run, metrics):
        if run.steps == 100:
            raise KeyboardInterrupt

    agent = tiny("IQN", exploration=rp.EpsilonGreedy(), decay_starts=0.0, final_learning_rate=0.0)
    whole = rp.train(agent, "RiskyGrid", steps=200, seeds=2)
    part = rp.train(agent, "RiskyGrid", steps=200, seeds=2, callbacks=[interrupt])
    assert part.steps == 100
    assert same(parameters(rp.train(part), 0), parameters(whole, 0))
    assert float(whole.lanes.clock.done) == 1.0
    longer = rp.train(part, steps=200)  # counts as one training of 400 steps
    assert int(longer.lanes.clock.planned) == 400


def test_learning_is_one_gradient_step(unchecked):
    run = rp.train(tiny("IQN"), "RiskyGrid", steps=200, seeds=2)
    assert run.lanes.agent_state.opt_state[0].count.tolist() == [200 - FAST.learning_starts] * 2


# The losses of all agents are asked about a masked action in test_losses.py and in the tests of the agents.
@pytest.mark.parametrize(
    "name", ["IQN", *(pytest.param(name, marks=pytest.mark.long) for name in ("CVaRDRL", "TQL convolved"))]
)
def test_masked_actions_are_never_taken_nor_bootstrapped_on(name, unchecked):
    # "right" is available at s0 only, where it pays 50. A critic that bootstrapped from it at s1 as well would value
    # "left" at s0 like "right".
    outcomes = {
        ("s0", "left"): [(1.0, 0.0, "s1")],
        ("s0", "right"): [(1.0, 50.0, "end")],
        ("s1", "left"): [(1.0, 10.0, "end")],
    }
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "s0")
    agent = tiny(name, exploration=rp.EpsilonGreedy(1.0, 1.0), learning_rate=1e-2, reward_scale=0.01, kappa=1.0)
    run = rp.train(agent, mdp, steps=500)
    rows = np.asarray(run.lanes.store.rows[:500, 0])
    states, actions = rows[:, 0].astype(int), rows[:, 1].astype(int)
    assert set(zip(states.tolist(), actions.tolist(), strict=True)) == {(0, 0), (0, 1), (1, 0)}
    policy = run.policy()
    assert policy.estimate("s0") == pytest.approx({"left": 9.9, "right": 50.0}, abs=5.0)
    after_left = policy.override_action(policy("s0")[1], "left")
    assert set(policy.estimate("s1", after_left, reward=0.0)) == {"left"}
    assert mdp.evaluate(policy).mean == 50.0


def test_a_reward_that_is_no_number_stops_the_run_and_keeps_what_was_there(unchecked):
    run = rp.train(tiny("IQN"), as_environment("RiskyGrid"), steps=100, seeds=2)
    before = parameters(run, 0)
    rewards = lambda lanes: lanes.env.tables.reward
    run.lanes = eqx.tree_at(rewards, run.lanes, rewards(run.lanes) * jnp.nan)
    with pytest.raises(rp.TrainingStopped, match="a reward was not a finite number between steps 100 and") as stop:
        rp.train(run, steps=100)
    assert stop.value.run.steps == 100
    assert same(parameters(stop.value.run, 0), before)


def test_a_loss_that_is_no_number_stops_the_run_too(unchecked):
    with pytest.raises(rp.TrainingStopped, match=r"the loss was not a finite number .* try a smaller learning_rate"):
        rp.train(tiny("IQN", learning_rate=float("inf")), "RiskyGrid", steps=200, seeds=2)


def test_interruption_returns_what_was_trained_so_far(unchecked):
    def interrupt(run, metrics):
        if run.steps >= 100:
            raise KeyboardInterrupt

    run = rp.train(tiny("IQN"), "RiskyGrid", steps=10_000, seeds=2, progress=interrupt)
    assert 100 <= run.steps < 10_000


def test_the_lanes_of_a_program_do_not_see_each_other(unchecked):
    pair = rp.train([tiny("IQN", 0.1), tiny("IQN", 0.9)], "RiskyGrid", steps=120)
    other = rp.train([tiny("IQN", 0.1), tiny("IQN", 0.5)], "RiskyGrid", steps=120)
    assert same(parameters(pair, 0), parameters(other, 0))
    assert pair.lanes.round.steps == 20


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
        (
            lambda: rp.train([tiny("IQN"), tiny("TQL joint")], "RiskyGrid", steps=10),
            "may differ in float hyperparameters only",
        ),
        (
            lambda: rp.train([tiny("IQN", learning_rate=1), tiny("IQN", learning_rate=2)], "RiskyGrid", steps=10),
            "may differ in float hyperparameters only: write 2.0, not 2",
        ),
        (
            lambda: rp.train([tiny("IQN")] * 2, [horizon(3), horizon(2)], steps=10),
            "environments trained together (may differ in numbers only|must have the same sizes)",
        ),
        (
            lambda: rp.train(tiny("IQN"), rp.RiskyMountainCar(), steps=10),
            "IQN needs discrete actions, but this environment has continuous actions",
        ),
        (lambda: rp.Network(head="best"), "head must be factored or deep or table, got 'best'"),  # pyright: ignore[reportArgumentType]
        (lambda: rp.Network(history="lstmm"), "history must be .*gru or .*got 'lstmm' .did you mean lstm"),
        (lambda: rp.Network(hidden=()), "a network needs at least one hidden layer"),
        (
            lambda: rp.train(tiny("IQN", train_freq=3), "RiskyGrid", steps=10, num_envs=2),
            "train_freq and num_envs must divide one another, got 3 and 2",
        ),
        (lambda: rp.train([tiny("IQN")] * 2, ["RiskyGrid"] * 3, steps=10), "got 2 agents and 3 environments"),
        (lambda: rp.train([tiny("IQN")] * 2, ["RiskyGrid", "ThreeState"], steps=10), "must have the same sizes"),
        (
            lambda: rp.train(tiny("IQN"), "RiskyGrid", steps=10, seeds=2).policy(seed=3),
            "no seed 3 of 2, setting 0 of 1",
        ),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


# Short learning runs of networks, fixed seeds; tests/nn/test_critics.py asks for the values, too. The bet is lost with
# probability 0.2, well away from the level 0.1 at which the tail is cut.
BET = rp.ThreeState(p_win=0.8)
LEARN = rp.Training(
    learning_starts=500,
    target_update_interval=50,
    learning_rate=3e-3,
    final_learning_rate=3e-4,
    buffer_size=8000,
    batch_size=16,
    num_quantiles=8,
    num_target_quantiles=8,
    num_action_quantiles=16,
)


def learned(name: str, problem: rp.ThreeState = BET, steps: int = 3_000) -> rp.Run:
    network = rp.Network(hidden=(32,), history_size=8)
    parts = {"network": network, "training": LEARN, "exploration": rp.EpsilonGreedy(final_eps=0.3)}
    agent = AGENTS[name](rp.CVaR(0.1), discount=1.0, **parts)
    return rp.train(agent, problem, steps=steps, seeds=2)


# A table of the trajectory critic learns exact values in tests/nn/test_critics.py, and the convolved critic is asked
# for known values above.
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["TQL joint", "TQL trajectory", "TQL convolved"],
)
def test_tql_learns_to_bet_twice(name, unchecked):
    run = learned(name, steps=3_000 if name == "TQL joint" else 6_000)
    exact = BET.mdp().evaluate(["risky", "risky"]).quantile((np.arange(50) + 0.5) / 50)  # from −20 to 200
    for seed in range(2):
        assert run.values()[0, seed] == pytest.approx(46.0)
        policy = run.policy(seed)
        estimate, quantiles = policy.estimate("s0"), policy.quantiles("s0", count=50)["risky"]
        assert np.abs(quantiles - exact).mean() < 12.0  # the levels next to the two jumps are smoothed
        assert estimate["risky"] > 20.0 > estimate["safe"]


@pytest.mark.long  # tests/nn/test_critics.py asks a table of IQN for the exact values of such a bet
def test_iqn_learns_never_to_bet(unchecked):
    run = learned("IQN", rp.ThreeState(p_win=0.6))
    for seed in range(2):
        assert run.values()[0, seed] == pytest.approx(-10.0)
        assert run.policy(seed).estimate("s0")["safe"] == pytest.approx(-10.0, abs=3)


@pytest.mark.long  # test_losses.py compares its loss with a transcription
def test_cvar_drl_reacts_to_its_rewards(unchecked):
    # Shares (+40 or −10) or bonds (+5) for two years: the best policy buys shares until one year was good. It is worth
    # 25; the best policy that does not see its rewards is worth 22, the per-step greedy one 10.
    shares, bonds = [(0.8, 40.0), (0.2, -10.0)], [(1.0, 5.0)]
    outcomes = {
        (year, name): [(prob, reward, following) for prob, reward in asset]
        for year, following in (("year 1", "year 2"), ("year 2", "end"))
        for name, asset in (("shares", shares), ("bonds", bonds))
    }
    mdp = rp.FiniteMDP.from_outcomes(outcomes, start="year 1")
    sizes = {"batch_size": 32, "num_quantiles": 32, "num_target_quantiles": 32, "num_action_quantiles": 64}
    parts = {"training": dataclasses.replace(LEARN, **sizes), "exploration": rp.EpsilonGreedy(final_eps=0.3)}
    agent = rp.CVaRDRL("cvar:0.25", discount=1.0, network=rp.Network(hidden=(32,)), **parts)
    run = rp.train(agent, mdp, steps=6_000, seeds=2)
    assert run.values()[0] == pytest.approx([25.0, 25.0])
    assert run.estimates()[0] == pytest.approx([25.0, 25.0], abs=5.0)
