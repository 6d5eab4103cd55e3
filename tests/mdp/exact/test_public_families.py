"""RiverSwim, the gambler's ruin and an inventory against small dynamic programs that share no code with the solvers."""

import functools
import math

import numpy as np
import pytest

import riskpath as rp

FAMILIES = {
    "river": (rp.RiverSwim(steps=100), 1e-3),
    "gambler": (rp.GamblersRuin(rounds=100), 0.3),
    "inventory": (rp.Inventory(), 0.02),
}
"""The problems, and the size of aversions that change the policy."""


def log_moments(mdp, aversions):
    """Return min log E[e^{−λZ}] for every λ, by its own recursion: the moment is a product along an episode."""
    known: dict = {}
    for state in sorted(mdp.outcomes, key=lambda state: -state[1]):
        scale, options = aversions * mdp.discount ** state[1], []
        for listed in mdp.outcomes[state].values():
            options.append(
                np.logaddexp.reduce([math.log(o.prob) - scale * o.reward + known.get(o.next, 0.0) for o in listed])
            )
        known[state] = np.min(options, axis=0)
    (start,) = mdp.start
    return known[start]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.usefixtures("unchecked")
def test_entropic_risk_of_discounted_returns(name):
    env, size = FAMILIES[name]
    mdp = env.mdp(0.9)
    aversions = np.array([size, 10 * size])
    for aversion, best in zip(aversions, -log_moments(mdp, aversions) / aversions, strict=True):
        assert rp.solve(mdp, rp.Entropic(aversion)).value == pytest.approx(best, rel=1e-6), aversion


@pytest.mark.parametrize(
    ("name", "level"), [("river", 0.1), pytest.param("river", 0.7, marks=pytest.mark.long), ("inventory", 0.3)]
)
@pytest.mark.usefixtures("unchecked")
def test_evar_of_discounted_returns(name, level):
    env, size = FAMILIES[name]
    mdp = env.mdp(0.9)
    found = rp.solve(mdp, rp.EVaR(level))

    values = np.zeros(0)
    grid = np.linspace(math.log(1e-2 * size), math.log(1e2 * size), 33)
    for _ in range(6):  # each pass divides the interval by sixteen
        aversions = np.exp(grid)
        values = (math.log(level) - log_moments(mdp, aversions)) / aversions
        at = int(np.argmax(values))
        grid = np.linspace(grid[max(at - 1, 0)], grid[min(at + 1, 32)], 33)
        if np.ptp(values) < 1e-9 * abs(values.max()):
            break
    assert found.value == pytest.approx(values.max(), rel=1e-6)
    assert found.bounds is not None
    assert found.bounds[0] <= found.bounds[1] <= found.value * (1 + 1e-4) + 1e-2


def by_goals(mdp, utility):
    """Return max E[utility(Z)], an array, from every start: plain recursion over state and return so far."""

    @functools.cache
    def best(state, so_far):
        if state not in mdp.outcomes:
            return utility(so_far)
        scale = mdp.discount ** state[1]
        options = [
            sum(o.prob * best(o.next, round(so_far + scale * o.reward, 9)) for o in listed)
            for listed in mdp.outcomes[state].values()
        ]
        return np.max(options, axis=0)

    (start,) = mdp.start
    return best(start, 0.0)


def all_returns(mdp):
    """Return every return that can occur."""
    reached, ends = {(state, 0.0) for state in mdp.start}, set()
    while reached:
        following = set()
        for state, so_far in reached:
            if state not in mdp.outcomes:
                ends.add(so_far)
                continue
            scale = mdp.discount ** state[1]
            for listed in mdp.outcomes[state].values():
                following |= {(o.next, round(so_far + scale * o.reward, 9)) for o in listed}
        reached = following
    return np.array(sorted(ends))


@pytest.mark.parametrize(
    "mdp",
    [
        rp.RiverSwim(steps=12).mdp(),
        rp.GamblersRuin().mdp(),
        rp.RiverSwim(places=4, steps=7).mdp(0.9),
        rp.GamblersRuin(start_money=3, target=6, rounds=4).mdp(0.9),
    ],
    ids=["river", "gambler", "river discounted", "gambler discounted"],
)
@pytest.mark.usefixtures("unchecked")
def test_cvar_and_var(mdp):
    goals = all_returns(mdp)
    shortfalls = by_goals(mdp, lambda z: np.minimum(z - goals, 0.0))
    chances = by_goals(mdp, lambda z: (z >= goals - 1e-9).astype(float))
    for level in (0.05, 0.1, 0.25, 0.5):
        best = (goals + shortfalls / level).max()
        assert rp.solve(mdp, rp.CVaR(level)).value == pytest.approx(best, abs=1e-6)
        best = goals[chances >= 1 - level - 1e-9].max()
        assert rp.solve(mdp, rp.VaR(level)).value == pytest.approx(best, abs=1e-6)
    for at in (len(goals) // 3, len(goals) // 2):
        found = rp.solve(mdp, rp.ReachProbability(goals[at]))
        assert found.value == pytest.approx(chances[at], abs=1e-9)
