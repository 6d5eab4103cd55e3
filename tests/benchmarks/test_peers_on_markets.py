"""The benchmarks against peers on markets, as far as they do not need the peers."""

import json
import sys

import numpy as np
import pytest

import riskpath as rp


def test_profit_of_a_path_by_hand(benchmark):
    """Two decisions: −payoff 0.2, gains 0.5·0.1 + 1·0.1, costs 0.01·(1·0.5 + 1.1·0.5)."""
    env = rp.OptionHedging(steps=2, cost=0.01)
    profit = benchmark("hedging").profits(env, np.array([[1.0, 1.1, 1.2]]), np.array([[0.5, 1.0]]))
    assert profit == pytest.approx([-0.2 + 0.05 + 0.1 - 0.01 * (0.5 + 0.55)])


def test_the_delta_hedge_costs_the_price_of_the_option_on_average(benchmark):
    hedging, paths = benchmark("hedging"), benchmark("market_paths")
    env, free = rp.OptionHedging(), rp.OptionHedging(cost=0.0)
    prices = hedging.price_paths(env, paths.draw_noise(20_000, env.steps, 0))
    hedges = hedging.delta_hedges(env, prices)
    premium = float(env.option_price(0, 1.0))
    assert hedges[:, 0] == pytest.approx(0.5 + premium / 2, abs=1e-6)  # at the money: N(d) − N(−d) is the price
    assert hedging.profits(free, prices, hedges).mean() == pytest.approx(-premium, abs=1e-4)
    profits = hedging.profits(env, prices, hedges)
    assert rp.CVaR(0.1).value(profits) == pytest.approx(-0.0309, abs=3e-4)
    unhedged = hedging.profits(env, prices, np.zeros_like(hedges))
    assert rp.CVaR(0.1).value(unhedged) < -0.09


def test_the_rewards_of_an_episode_of_trades_by_hand(benchmark):
    """Buy 1 at 1, sell 2 at 1.5, are short of 1 at 2: −1 − c, 3 − 4c − 2 − 0.5."""
    env = rp.MeanReversionTrading(steps=2)
    rewards = benchmark("qrsrm_peer").rewards(env, np.array([[1.0, 1.5, 2.0]]), np.array([[1.0, -2.0]]))
    assert rewards[0] == pytest.approx([-1.005, 3 - 0.02 - 2 - 0.5])


@pytest.mark.long
def test_a_played_policy_earns_what_the_environment_pays(benchmark):
    """The amounts on given noise, with the prices in NumPy, have the returns of the environment."""
    paths, trading, hedging = (benchmark(name) for name in ("market_paths", "qrsrm_peer", "hedging"))
    network = rp.Network(hidden=(8,))
    env = rp.MeanReversionTrading()
    agent = rp.QRSRM(
        "cvar:0.25", network=network, training=rp.Training(batch_size=4, learning_starts=20, target_update_interval=10)
    )
    run, took = paths.train_ours(agent, env, 65, 1, 1)
    noise = paths.draw_noise(50, env.steps, 3)
    amounts, returns = paths.play(run, noise)
    own = trading.rewards(env, trading.price_paths(env, noise), amounts).sum(axis=1)
    assert own == pytest.approx(returns, abs=1e-4)
    assert took["training_steps"] == 60
    assert took["updates"] > 0

    hedge = rp.OptionHedging(continuous=True)
    training = rp.Training(batch_size=4, learning_starts=20, train_freq=4)
    agent = rp.IQTD3("mean", network=network, training=training)
    run, _ = paths.train_ours(agent, hedge, 20, 1, 4)  # fresh networks do, too
    noise = paths.draw_noise(50, hedge.steps, 3)
    amounts, returns = paths.play(run, noise)
    assert hedging.profits(hedge, hedging.price_paths(hedge, noise), amounts) == pytest.approx(returns, abs=1e-5)


def test_held_out_episodes_are_part_of_the_budget(benchmark):
    paths = benchmark("market_paths")
    blocks = 13 + 6 * 2 + 3 * 4  # thirteen first goals, the better six, the better three
    agent, left = paths.fit_to_budget(rp.Adaptive("cvar:0.1"), 1_000_000, 20, 1)
    assert agent.population()[1] == 1_000_000 // (10 * blocks * 20)
    used = left + blocks * agent.population()[1] * 20
    assert 1_000_000 - agent.training.target_update_interval < used <= 1_000_000
    assert agent.training.decay_ends == 1.0
    assert paths.fit_to_budget(rp.IQTD3("mean"), 1_000_000, 20, 4)[1] == 1_000_000


def test_the_standard_error_of_cvar(benchmark):
    returns = np.random.default_rng(0).normal(size=(400, 1_000))
    error = benchmark("market_paths").cvar_error(returns[0], 0.1)
    spread = np.std([rp.CVaR(0.1).value(sample) for sample in returns])
    assert error == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize("name", ["hedging", "qrsrm_peer"])
def test_a_missing_peer_is_reported_in_one_line(benchmark, name, monkeypatch):
    module = benchmark(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *(["--qrsrm", "."] if name == "qrsrm_peer" else [])])
    monkeypatch.setattr(module, "missing", lambda *_: "torch not installed: make bench-peers-install")
    with pytest.raises(SystemExit, match="make bench-peers-install"):
        module.main()


def test_the_recorded_command_has_no_path_of_a_machine(benchmark):
    module = benchmark("qrsrm_peer")
    assert module._others(["--quick", "--qrsrm", "/somewhere", "--seeds", "2"]) == ["--quick", "--seeds", "2"]
    assert module._others(["--qrsrm=/somewhere", "--quick"]) == ["--quick"]


def test_references_are_those_of_the_suite(benchmark):
    module = benchmark("qrsrm_peer")
    assert json.loads(module.OPTIMA.read_text())["records"]
    assert module.references(0.25)["best"] == pytest.approx(0.123, abs=2e-3)
