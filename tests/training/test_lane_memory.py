"""What a training or an evaluation needs is known before it starts; what cannot fit is refused in one line."""

import pytest

import riskpath as rp
from riskpath import memory
from riskpath.training import lane_memory
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start

AGENT = rp.IQN("mean", network=rp.Network(hidden=(8,)), training=rp.Training(buffer_size=1_000))
BIG = rp.IQN("mean", training=rp.Training(buffer_size=10**10))


@pytest.fixture(autouse=True)
def four_gigabytes(monkeypatch):
    for place in (memory, lane_memory):
        monkeypatch.setattr(place, "free_bytes", lambda: 4e9)


@pytest.mark.parametrize(
    ("agent", "options", "text"),
    [
        (
            AGENT,
            {"seeds": 10**8},
            r"^training seeds=100,000,000, num_envs=1 needs .* TB, and 4 GB are free: about",
        ),
        ([AGENT] * 2, {"seeds": 10**7}, "training 2 settings with seeds=10,000,000, num_envs=1 needs"),
        (AGENT, {"first_seed": 10**10}, "use a smaller first_seed"),
        (AGENT, {"num_envs": 10**9}, "use a smaller training.buffer_size, or fewer num_envs"),
        (BIG, {}, "use a smaller training.buffer_size, or fewer num_envs"),
    ],
)
def test_a_training_that_cannot_fit_is_refused(agent, options, text):
    with pytest.raises(rp.RiskpathError, match=text):
        rp.train(agent, "RiskyGrid", steps=10, **options)


def test_as_many_seeds_as_are_named_do_fit():
    env = as_environment("RiskyGrid")
    with pytest.raises(rp.RiskpathError, match="seeds fit") as found:
        lane_memory.require_lanes([AGENT], env, 10**8, 1, 0)
    fit = int(str(found.value).rpartition("about ")[2].split()[0].replace(",", ""))
    assert fit > 1_000
    lane_memory.require_lanes([AGENT], env, fit, 1, 0)


def test_an_evaluation_that_cannot_fit_is_refused():
    env = as_environment("RiskyGrid")
    run = rp.Run([AGENT], [env], 1, start([AGENT], [env], 1, 1, 0))
    with pytest.raises(rp.RiskpathError, match=r"evaluating 1,000,000,000,000 episodes .* 50,000,000 episodes fit"):
        run.evaluate(10**12)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("RiskyGrid", {"forks": 10**6}),
        ("Inventory", {"capacity": 10**9}),
        ("BettingGame", {"bets": 10**9}),
        ("GamblersRuin", {"target": 10**8}),
        ("RiverSwim", {"places": 10**12}),
        ("WindyCliff", {"height": 10**12}),
        ("Liquidation", {"lots": 10**9, "steps": 10**6}),
        ("RandomMDP", {"width": 10**12}),
    ],
)
def test_a_table_that_cannot_fit_is_refused(name, fields):
    with pytest.raises(rp.RiskpathError, match=f"{name} has about .* pairs .* are free, in which about .* fit"):
        rp.make(name, **fields).mdp()


def test_free_memory_is_that_of_the_container(tmp_path, monkeypatch):
    monkeypatch.undo()
    machine = memory.free_bytes()
    assert machine is not None
    assert machine > 1e7
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    for most, free in (("max", memory._machine()), ("5000", 3000.0)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        (tmp_path / "memory.current").write_text("2000\n")
        assert memory.free_bytes() == pytest.approx(free, rel=0.5)
    (tmp_path / "memory.stat").write_text("active_file 700\ninactive_file 1500\n")  # copies of files count as free
    assert memory.free_bytes() == 4500
    assert [memory.in_units(size) for size in (7, 2.5e4, 3e15)] == ["7 B", "25 kB", "3 PB"]
