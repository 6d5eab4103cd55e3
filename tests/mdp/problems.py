"""Small problems, fixed and random, and brute-force answers that share no code with the solvers."""

import functools
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.risk.compose import as_distortion


def seeds(few: int, all_: int) -> Any:
    """Give a test the numbers of its random problems: a few in every run, the others in a long one."""
    others = pytest.param(range(few, all_), marks=pytest.mark.long, id="others")
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id="few"), others])


def table(law: rp.Law) -> dict[float, float]:
    """{atom: probability}, rounded."""
    return {round(x, 9): round(p, 12) for x, p in zip(law.atoms.tolist(), law.probs.tolist(), strict=True)}


def made(outcomes: Any = None, start: Any = "s", **settings: Any) -> rp.FiniteMDP:
    """Make a problem from untyped input, by default one of a single step."""
    return rp.FiniteMDP.from_outcomes(
        {("s", "a"): [(1.0, 0.0, "end")]} if outcomes is None else outcomes, start, **settings
    )


THREE = rp.ThreeState().mdp()
SURE = {("s0", "stay"): [(1.0, 1.0, "s0")], ("s0", "go"): [(1.0, 5.0, "end")]}
# Random transitions: the second choice is made in state "rich" or in state "poor".
FORK = rp.FiniteMDP.from_outcomes(
    {
        ("start", "spin"): [(0.25, 8.0, "rich"), (0.25, 4.0, "rich"), (0.5, 0.0, "poor")],
        ("start", "wait"): [(1.0, 1.0, "poor")],
        ("rich", "keep"): [(1.0, 0.0, "end")],
        ("rich", "bet"): [(0.5, 10.0, "end"), (0.5, -10.0, "end")],
        ("poor", "keep"): [(1.0, 0.0, "end")],
        ("poor", "bet"): [(0.5, 10.0, "end"), (0.5, -10.0, "end")],
    },
    start="start",
    discount=0.5,
)


def random_mdp(
    seed: int,
    *,
    depth: int = 3,
    width: int = 2,
    actions: int = 2,
    outcomes: int = 2,
    deterministic: bool = True,
    starts: int = 1,
    discount: float | None = None,
) -> rp.FiniteMDP:
    """Make a problem of `depth` layers of `width` states.

    Rewards are whole numbers, so that different paths have equal returns. Some states have fewer actions.
    """
    rng = np.random.default_rng(seed)
    table = {}
    for layer, i in product(range(depth), range(width)):
        for action in range(rng.integers(1, actions + 1) if layer else actions):
            probs = rng.dirichlet(np.ones(outcomes)).round(3)
            probs[-1] = 1 - probs[:-1].sum()
            nexts = rng.integers(0, width, size=outcomes)
            nexts[:] = nexts[0] if deterministic else nexts
            entries = []
            for prob, following in zip(probs, nexts, strict=True):
                last = layer == depth - 1
                entries.append((prob, float(rng.integers(-6, 7)), "end" if last else (layer + 1, int(following))))
            table[(layer, i), action] = entries
    start = {(0, i): 1 / starts for i in range(starts)}
    return rp.FiniteMDP.from_outcomes(
        table, start=start, discount=float(rng.choice([1.0, 0.9])) if discount is None else discount
    )


PlainLaw = dict[float, float]
"""{return: probability}."""


def mixed(parts: list[tuple[float, float, float, PlainLaw]]) -> PlainLaw:
    """Return the law of reward + scale · future, drawn from (probability, reward, scale, future) parts."""
    law: PlainLaw = {}
    for prob, reward, scale, future in parts:
        for z, p in future.items():
            value = round(reward + scale * z, 9)
            law[value] = law.get(value, 0.0) + prob * p
    return law


def value(risk: rp.RiskMeasure, law: PlainLaw) -> float:
    return float(risk.value(list(law), list(law.values())))


def best_of(risk: rp.RiskMeasure, laws: list[PlainLaw]) -> float:
    """Return the largest value of many laws; h is computed for all of them at once, which takes long for some."""
    atoms = [np.array(sorted(law)) for law in laws]
    cdfs = [np.cumsum([law[x] for x in xs]) for law, xs in zip(laws, atoms, strict=True)]
    weights = np.asarray(as_distortion(risk).weight(np.concatenate([cdf / cdf[-1] for cdf in cdfs])))
    parts = np.split(weights, np.cumsum([len(xs) for xs in atoms])[:-1])
    return max(float(xs @ np.diff(h, prepend=0.0)) for xs, h in zip(atoms, parts, strict=True))


def all_sequence_laws(mdp: rp.FiniteMDP, state, time: int = 0) -> list[PlainLaw]:
    """Return the law of the return to go of every action sequence, under deterministic transitions."""
    if mdp.is_terminal(state, time):
        return [{0.0: 1.0}]
    return [
        mixed([(o.prob, o.reward, mdp.discount, future) for o in listed])
        for listed in mdp.outcomes[state].values()
        for future in all_sequence_laws(mdp, listed[0].next, time + 1)
    ]


def best_sequence_value(mdp: rp.FiniteMDP, risk: rp.RiskMeasure) -> float:
    """Return the best value over all choices of one action sequence for each start state."""
    options = product(*(all_sequence_laws(mdp, state) for state in mdp.start))
    parts = ([(p, 0.0, 1.0, law) for p, law in zip(mdp.start.values(), laws, strict=True)] for laws in options)
    return max(value(risk, mixed(part)) for part in parts)


def all_adaptive_laws(mdp: rp.FiniteMDP, state, time: int = 0) -> list[PlainLaw]:
    """Return the laws of the return to go of all deterministic policies that see rewards, equal ones once."""
    if mdp.is_terminal(state, time):
        return [{0.0: 1.0}]
    laws: dict[tuple, PlainLaw] = {}
    for listed in mdp.outcomes[state].values():
        for futures in product(*(all_adaptive_laws(mdp, outcome.next, time + 1) for outcome in listed)):
            law = mixed([(o.prob, o.reward, mdp.discount, future) for o, future in zip(listed, futures, strict=True)])
            laws[tuple(sorted((z, round(p, 12)) for z, p in law.items()))] = law
    return list(laws.values())


def all_return_policies(mdp: rp.FiniteMDP) -> Iterator[rp.Law]:
    """Yield the law of every policy of (time, state, return so far); policies differ in reachable situations only."""
    unfinished: list[dict] = [{}]
    while unfinished:
        table = unfinished.pop()
        missing = []

        def follow(state, memory, reward, table=table, missing=missing):
            time, return_so_far = (
                (0, 0.0) if memory is None else (memory[0] + 1, memory[1] + mdp.discount ** memory[0] * reward)
            )
            node = (time, state, round(return_so_far, 9))
            if node not in table:
                missing.append(node)
            return table.get(node, mdp.actions(state)[0]), (time, return_so_far)

        law = mdp.evaluate(follow)
        if missing:
            unfinished.extend({**table, missing[0]: action} for action in mdp.actions(missing[0][1]))
        else:
            yield law


@functools.cache
def normal_sum() -> rp.GridProblem:
    """Return two steps that each pay action × (0.3 + noise): the mean wants 1, CVaR wants less."""
    return rp.GridProblem(
        axes={"held": np.linspace(0.0, 1.0, 11)},
        actions=np.linspace(0.0, 1.0, 11),
        steps=2,
        start=(0.0,),
        noise=rp.normal_noise(32),
        decide=lambda time, state, action: ((action,), 0.0),
        move=lambda time, post, noise: ((post[0],), post[0] * (0.3 + noise)),
        return_points=401,
    )
