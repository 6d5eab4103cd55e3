"""Rollouts in pieces: the same episodes for every size of the pieces, and smaller pieces when memory runs out."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.finite import as_arrays
from riskpath.evaluation import rollout as module
from riskpath.training.lanes import is_swept, stack
from tests.evaluation.policies import MAZE_ENV, TINY

EPISODES, SEEDS = 7, 2
AGENTS = [rp.TQL(rp.CVaR(level), discount=0.9, network=TINY) for level in (0.2, 1.0)]
LANES = len(AGENTS) * SEEDS
pytestmark = pytest.mark.usefixtures("unchecked_module")


def run(episodes: int = EPISODES, limit: int = 5, seed: int = 0) -> module.Returns:
    """Roll out untrained agents in the maze."""
    spec, agent = MAZE_ENV.spec, stack(AGENTS, SEEDS, is_swept)
    env = stack([as_arrays(MAZE_ENV)] * len(AGENTS), SEEDS, eqx.is_array)
    keys = jax.random.split(jax.random.key(7), LANES)
    state = eqx.filter_vmap(lambda agent, key: agent.init(spec, key=key))(agent, keys)
    return module.rollout(agent, env, state, spec, episodes, limit, keys=jax.random.split(jax.random.key(seed), LANES))


def record_pieces(monkeypatch: pytest.MonkeyPatch, fits: int = 10**9, error: str = "RESOURCE_EXHAUSTED: 100 GiB"):
    """Record the size of every piece; pieces of more than `fits` episodes raise an error of the runtime."""
    original, sizes = module._rollout_piece, []

    def piece(agent: Any, env: Any, state: Any, spec: Any, keys: Any, limit: Any) -> Any:
        sizes.append(keys.shape[1])
        if keys.shape[1] > fits:
            raise jax.errors.JaxRuntimeError(error)
        return original(agent, env, state, spec, keys, limit)

    monkeypatch.setattr(module, "_rollout_piece", piece)
    return sizes


@pytest.fixture(scope="module")
def whole() -> module.Returns:
    """Return all episodes from one piece."""
    return run()


def same(one: module.Returns, other: module.Returns) -> bool:
    """Tell whether two rollouts are equal; programs for other sizes may round discounted returns differently."""
    assert all(part.shape == (LANES, EPISODES) for part in (*one, *other))
    exact = np.array_equal(one[0], other[0]) and np.array_equal(one[2], other[2])
    return exact and np.allclose(one[1], other[1], rtol=1e-6, atol=0.0)


@pytest.mark.long  # repeats roll-outs in many sizes
@pytest.mark.parametrize(("size", "pieces"), [(4, [4, 4]), pytest.param(1, [1] * 7, marks=pytest.mark.long)])
def test_the_size_of_the_pieces_does_not_change_the_episodes(size, pieces, whole, monkeypatch):
    sizes = record_pieces(monkeypatch)
    monkeypatch.setattr(module, "_piece", lambda *args: size)
    assert same(run(), whole)
    assert sizes == pieces  # the last piece is filled up, so that all have one compiled program
    assert len(np.unique(whole[0])) > 3  # the episodes differ
    assert not same(run(seed=1), whole)


def test_the_pieces_follow_from_the_memory_of_the_device(whole, monkeypatch):
    needed = _bytes_per_episode()
    assert 1_000 < needed < 1_000_000
    for room, size in ((needed * LANES * 4, 4), (1.0, 1), (needed * LANES * 100, EPISODES)):
        monkeypatch.setattr(module, "DEFAULT_MEMORY", room / module.MEMORY_SHARE * 1.001)
        sizes = record_pieces(monkeypatch)
        assert same(run(), whole)
        assert set(sizes) == {size}
        monkeypatch.undo()


def _bytes_per_episode() -> int:
    """Return the bytes that one step of one episode needs at most."""
    agent, spec = AGENTS[0], MAZE_ENV.spec
    state = agent.init(spec, key=jax.random.key(0))
    program = eqx.filter_make_jaxpr(lambda a, s: module._first_action(a, s, spec))(agent, state)[0]
    return module._intermediate_bytes(program.jaxpr)


def test_pieces_are_halved_when_memory_runs_out(whole, monkeypatch):
    sizes = record_pieces(monkeypatch, fits=4)
    assert same(run(), whole)
    assert sizes == [7, 4, 4]


@pytest.mark.parametrize(
    ("fits", "error", "sizes"), [(0, "RESOURCE_EXHAUSTED: 100 GiB", [7, 4, 2, 1]), (4, "INTERNAL: a bug", [7])]
)
def test_other_errors_and_a_single_episode_that_does_not_fit_are_raised(fits, error, sizes, monkeypatch):
    seen = record_pieces(monkeypatch, fits, error)
    with pytest.raises(jax.errors.JaxRuntimeError, match=error):
        run()
    assert seen == sizes


def test_a_limit_does_not_change_the_episodes_that_end_before_it(whole):
    returns, discounted, finished = run(limit=2)
    assert (finished <= whole[2]).all()
    short = finished & whole[2]
    assert 0 < short.sum() < short.size
    for cut, full in ((returns, whole[0]), (discounted, whole[1])):
        np.testing.assert_array_equal(cut[short], full[short])
