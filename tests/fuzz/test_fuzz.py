"""Calls with odd values, thousands of them: each answers correctly or refuses in one line, and all of them end.

`make test` runs a few of them, always the same ones; `make test-long` more than 2,000.
"""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import riskpath as rp
from riskpath.cli.main import main
from riskpath.envs import BY_NAME
from tests.conftest import without_training
from tests.fuzz.odd import NUMBERS, ODD, TEXTS, answer_or_line
from tests.training.test_host_loop import NUMBERED

Draw = Callable[[Any], Any]

MEASURES = (rp.CVaR, rp.VaR, rp.Wang, rp.POW, rp.CPW, rp.Entropic, rp.EVaR, rp.ReachProbability, rp.MeanSemideviation)
RISKS = ("mean", "cvar:0.1", "wang:-0.5", "var:0.25", "evar:0.1", "entropic:0.5", "worst", "0.5*mean+0.5*cvar:0.1")
SMALL = st.integers(-3, 3).map(float)


def measures(draw: Draw) -> None:
    """A measure with any parameter: its value lies between the least and the largest return."""
    kind, value = draw(st.sampled_from(MEASURES)), draw(ODD)
    measure = answer_or_line(lambda: kind(value))
    if measure is not None:
        law = rp.Law([-1.0, 0.5, 2.0], [0.2, 0.3, 0.5])
        found = answer_or_line(lambda: law.risk(measure))
        assert found is None or math.isfinite(found), (measure, found)
        if found is not None and getattr(measure, "monetary", False) and not isinstance(measure, rp.MeanSemideviation):
            assert -1.0 - 1e-6 <= found <= 2.0 + 1e-6, (measure, found)


def texts(draw: Draw) -> None:
    """The text of a measure that was read is that of the same measure."""
    name = draw(st.sampled_from(["cvar", "var", "wang", "pow", "cpw", "entropic", "evar", "mean", ""]))
    text = draw(st.one_of(ODD, NUMBERS.map(lambda x: f"{name}:{x}"), TEXTS.map(lambda x: f"{name}:{x}")))
    measure = answer_or_line(lambda: rp.parse_risk(text))
    if measure is not None:
        assert str(rp.parse_risk(str(measure))) == str(measure), text


def laws(draw: Draw) -> None:
    """A law has probabilities with sum 1 and finite atoms, whatever is done with it."""
    atoms, probs = draw(st.one_of(ODD, st.lists(NUMBERS, max_size=4))), draw(st.one_of(ODD, st.just([0.5, 0.5])))
    law = answer_or_line(lambda: rp.Law(atoms, probs))
    law = rp.Law([0.0, 1.0, 1e9], [0.25, 0.25, 0.5]) if law is None else law
    calls: dict[str, Callable[[Any], Any]] = {
        "shift": law.shift,
        "scale": law.scale,
        "coarsen": lambda x: law.coarsen(x)[0],
        "mix": lambda x: rp.Law.mix([law, law], x),
        "sample": lambda x: rp.Law.of_sample(law.sample(3, x)),
        "of_sample": rp.Law.of_sample,
        "point": rp.Law.point,
    }
    name, value = draw(st.sampled_from(sorted(calls))), draw(ODD)
    found = answer_or_line(lambda: calls[name](value))
    if found is not None:
        assert np.isfinite(found.atoms).all(), (name, value)
        assert abs(found.probs.sum() - 1) < 1e-6, (name, value)
    level = draw(ODD)
    for ask in (law.quantile, law.cdf, law.risk, lambda x: law.dominates(law, x), lambda x: law.wasserstein(law, x)):
        answer_or_line(lambda ask=ask: ask(level))


def tables(draw: Draw) -> None:
    """A problem from any table, and its exact solution."""
    state = st.sampled_from(["a", "b", "end", 0, None])
    outcome = st.one_of(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), SMALL, state), st.tuples(NUMBERS, NUMBERS, ODD), ODD
    )
    listed = st.dictionaries(st.tuples(state, st.sampled_from(["x", "y"])), st.lists(outcome, max_size=2), max_size=3)
    table = draw(st.one_of(listed, listed, ODD))
    options = draw(st.fixed_dictionaries({}, optional={"discount": NUMBERS, "horizon": ODD, "terminal": ODD}))
    mdp = answer_or_line(lambda: rp.FiniteMDP.from_outcomes(table, start=draw(st.one_of(state, ODD)), **options))
    if mdp is not None:
        solved(mdp, draw)


def solutions(draw: Draw) -> None:
    """A good problem with any rewards, solved with any options."""
    scale = draw(st.sampled_from([1e-9, 1e-3, 1.0, 1e3, 1e9]))
    rewards = draw(st.lists(SMALL, min_size=6, max_size=6))
    pays = iter([scale * reward for reward in rewards])
    table = {
        (step, action): [(0.25, next(pays), step + 1), (0.75, next(pays), 9 if step else 1)]
        for step, action in ((0, "x"), (0, "y"), (1, "x"))
    }
    horizon = draw(st.sampled_from([None, 1, 5]))
    solved(rp.FiniteMDP.from_outcomes(table, 0, draw(st.sampled_from([1.0, 0.9])), horizon), draw)


def solved(mdp: rp.FiniteMDP, draw: Draw) -> None:
    risk = draw(st.one_of(st.sampled_from(RISKS), st.sampled_from(RISKS), ODD))
    policies = draw(st.sampled_from(["adaptive", "markov", "nested", "history"]))
    odd = st.fixed_dictionaries({}, optional={"tolerance": ODD, "randomised": st.booleans(), "time_limit": ODD})
    options = draw(st.one_of(st.just({}), st.just({}), odd))
    found = answer_or_line(lambda: rp.solve(mdp, risk, policies, **options))
    if found is not None:
        assert math.isfinite(found.value)
        slack = 1e-6 * max(1.0, abs(found.value))
        lower, upper = found.bounds or (found.value, found.value)
        assert lower - slack <= found.value <= upper + slack
        assert abs(found.law.risk(risk) - found.value) <= slack
        if not found.components:
            assert abs(mdp.evaluate(found.policy).risk(risk) - found.value) <= slack
        if found.optimal and policies == "adaptive":
            plain = answer_or_line(lambda: rp.solve(mdp, risk, "markov"))
            assert plain is None or plain.value <= found.value + slack


def frontiers(draw: Draw) -> None:
    """The frontier at any levels is not above the mean, and rises with the level."""
    levels = draw(st.one_of(ODD, st.lists(NUMBERS, max_size=3), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3)))
    found = answer_or_line(lambda: rp.frontier(rp.make("ThreeState"), levels))
    if found is not None:
        rows = sorted(found.rows(), key=lambda row: row["level"])
        values = [row["cvar"] for row in rows]
        assert values == sorted(values)


def environments(draw: Draw) -> None:
    """Any field of any environment, and its problem."""
    name = draw(st.sampled_from(sorted(BY_NAME)))
    fields = [field.name for field in dataclasses.fields(BY_NAME[name])]
    values = draw(st.dictionaries(st.sampled_from([*fields, "colour"]), ODD, max_size=2))
    env = answer_or_line(lambda: rp.make(name, **values))
    if env is not None:
        answer_or_line(lambda: env.spec)
    for method in ("mdp", "grid_problem"):
        if env is not None and hasattr(env, method):
            answer_or_line(lambda method=method: getattr(env, method)())


def agents(draw: Draw) -> None:
    """Any hyperparameter."""
    kind = draw(st.sampled_from([rp.Training, rp.ActorTraining, rp.Network, rp.IQN, rp.Adaptive, rp.PPO, rp.C51]))
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    values = draw(st.dictionaries(st.sampled_from(names), ODD, max_size=2))
    answer_or_line(lambda: kind(**values))


def trainings(draw: Draw) -> None:
    """Any size of a training; what is accepted is not trained here."""
    whole = ODD.filter(lambda x: not isinstance(x, int) or x not in (0, 1))
    options = {
        "steps": 50,
        **draw(st.dictionaries(st.sampled_from(["steps", "seeds", "num_envs", "first_seed"]), whole)),
    }
    if draw(st.booleans()):
        options["checkpoint"] = draw(ODD)
    answer_or_line(lambda: rp.train(rp.IQN("mean", **NUMBERED), draw(st.one_of(st.just("ThreeState"), ODD)), **options))


def runs(run: rp.Run, draw: Draw) -> None:
    """Questions about a run."""
    value, more = draw(ODD), draw(ODD)
    found = run.evaluate(100)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: run.values(value),
        lambda: run.law(value, more),
        lambda: run.policy(value),
        lambda: run.policy(risk=value),
        lambda: run.evaluate(value if value not in (1, True) else 0),
        lambda: found.risk(value),
        lambda: found.quantiles(value),
        lambda: found[value],
        lambda: found.values(risk=value),
        lambda: run.policy()(value),
        lambda: run.report(Path(str(value)) / "no" / "such\0file"),
        lambda: run.save(f"{more}\0"),
        lambda: rp.load(value),
        lambda: rp.load_policy(value),
        lambda: rp.load_sweep(value),
    )
    answer_or_line(calls[draw(st.integers(0, len(calls) - 1))])


def files(saved: Path, folder: Path, draw: Draw) -> None:
    """A broken file of a saved run: it is refused, or the run is the same."""
    place = folder / "broken"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(saved, place)
    file = place / draw(st.sampled_from(["header.json", "state.eqx", "curve.json"]))
    content = file.read_bytes()
    kind = draw(st.sampled_from(["cut", "flip", "other", "json", "gone", "folder", "loop", "value"]))
    file.unlink()
    if kind == "cut":
        file.write_bytes(content[: draw(st.integers(0, len(content)))])
    elif kind == "flip":
        at = draw(st.integers(0, len(content) - 1))
        file.write_bytes(content[:at] + bytes([content[at] ^ draw(st.integers(0, 255))]) + content[at + 1 :])
    elif kind == "other":
        file.write_bytes(draw(st.binary(max_size=40)))
    elif kind == "json":
        file.write_text(json.dumps(draw(st.one_of(st.none(), TEXTS, st.lists(st.integers()), st.just({})))))
    elif kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "value":  # a header that is JSON still
        header = json.loads((saved / "header.json").read_bytes())
        header[draw(st.sampled_from(sorted(header)))] = draw(
            st.one_of(st.none(), st.booleans(), TEXTS, st.just({"$": 1}))
        )
        file.write_bytes(content)
        (place / "header.json").write_text(json.dumps(header))
    found = answer_or_line(lambda: rp.load(place))
    assert found is None or found.steps == 40
    answer_or_line(lambda: rp.load_policy(file))
    answer_or_line(lambda: rp.load_sweep(place))


def data_sets(draw: Draw) -> None:
    """Episodes from any arrays."""
    parts = [draw(st.one_of(ODD, st.just([[0, 1]]), st.just([[0.0]]), st.lists(ODD, max_size=2))) for _ in range(3)]
    options = draw(st.dictionaries(st.sampled_from(["terminated", "num_states", "num_actions"]), ODD, max_size=2))
    found = answer_or_line(lambda: rp.Dataset.from_episodes(*parts, **options))
    assert found is None or len(found) > 0


def commands(draw: Draw) -> None:
    """A command line ends with status 0, or with 2 and one line."""
    path, number, word = draw(TEXTS), draw(NUMBERS), draw(TEXTS)
    fields = [f.name for f in dataclasses.fields(BY_NAME["RiskyGrid"])]
    lines = (
        ["solve", "ThreeState", "--risk", word, "--json"],
        ["solve", "ThreeState", f"--discount={number}", "--json"],
        ["solve", "RiskyGrid", "--set", f"{draw(st.sampled_from(fields))}={number}", "--json"],
        ["solve", word, "--set", path],
        ["frontier", "ThreeState", f"--levels={number}", "--json"],
        ["frontier", word, "--json"],
        ["train", "--env", word, "--steps", "1"],
        ["train", "--env", "ThreeState", f"--steps={number}x"],
        ["train", "--agent", word or "x"],
        ["train", "--config", path],
        ["evaluate", path, f"--episodes={number}"],
        ["resume", path],
        ["export", path, "x.zip"],
        ["report", f"no{path}"],
        ["sweep", path, f"--seeds={number}y"],
        ["bench", "suite", "--agents", f"no{word}"],
        ["serve", f"no{path}.zip"],
        ["reproduce", f"no{word}"],
        [word, path],
    )
    arguments = draw(st.sampled_from(lines))

    def run() -> Any:
        try:
            main(arguments)
        except SystemExit as stop:
            return stop.code
        return 0

    assert answer_or_line(run) in (0, 2), arguments


TARGETS: dict[str, tuple[Callable[..., None], int]] = {
    "measures": (measures, 300),
    "texts": (texts, 300),
    "laws": (laws, 200),
    "tables": (tables, 200),
    "solutions": (solutions, 120),
    "frontiers": (frontiers, 60),
    "environments": (environments, 300),
    "agents": (agents, 300),
    "trainings": (trainings, 60),
    "runs": (runs, 150),
    "files": (files, 100),
    "data sets": (data_sets, 150),
    "commands": (commands, 200),
}
"""What is called, and how often in `make test-long`: more than 2,000 times together."""


@pytest.fixture(scope="module")
def run() -> rp.Run:
    jaxtyping.config.update("jaxtyping_disable", True)
    trained = rp.train(rp.IQN(**NUMBERED), "ThreeState", steps=40)  # warm-up only: nothing is learned
    jaxtyping.config.update("jaxtyping_disable", False)
    return trained


def fuzz(name: str, run: Any, folder: Path, examples: int) -> None:
    target, _ = TARGETS[name]
    given_first: tuple[Any, ...] = ()
    if name == "runs":
        given_first = (run,)
    if name == "files":
        run.save(folder / "run")
        given_first = (folder / "run", folder)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(st.data())
    def check(data: Any) -> None:
        target(*given_first, data.draw)

    with without_training():
        check()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["measures", "texts", "laws", "tables", "agents", "files", "commands"])
def test_a_few_odd_calls(name, run, tmp_path, monkeypatch, unchecked, capsys):
    monkeypatch.chdir(tmp_path)
    fuzz(name, run, tmp_path, 8)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", TARGETS)
def test_many_odd_calls(name, run, tmp_path, monkeypatch, unchecked, capsys):
    monkeypatch.chdir(tmp_path)
    fuzz(name, run, tmp_path, TARGETS[name][1])


def test_many_are_many():
    assert sum(count for _, count in TARGETS.values()) >= 2_000
