"""The last hundred training episodes, against a list that NumPy keeps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.training.recent_episodes import DISCOUNTED, KEPT, LENGTH, RETURN, no_recent_episodes
from tests.training.sizes import TINY_IQN


def test_the_ring_holds_the_latest_episodes_of_each_lane():
    lanes, envs, steps, discount = 2, 3, 160, 0.9
    rng = np.random.default_rng(0)
    recent, add = no_recent_episodes(lanes, envs), jax.jit(lambda recent, *step: recent.add(*step))
    finished: list[list[list[float]]] = [[] for _ in range(lanes)]
    so_far, discounted, time = (np.zeros((lanes, envs)) for _ in range(3))
    for step in range(steps):
        reward, done = rng.normal(size=(lanes, envs)), rng.random((lanes, envs)) < [[0.4], [0.02]]
        so_far, discounted = so_far + reward, discounted + discount**time * reward
        recent = add(
            recent,
            *map(jnp.asarray, (reward.astype(np.float32), discounted.astype(np.float32))),
            jnp.asarray(time, jnp.int32),
            jnp.asarray(done),
        )
        for lane, env in np.argwhere(done):
            finished[lane].append([so_far[lane, env], discounted[lane, env], time[lane, env] + 1])
        so_far, discounted, time = (np.where(done, 0.0, x) for x in (so_far, discounted, time + 1))
        if step == 20:
            assert no_recent_episodes(2, 1).figures([rp.Mean(), rp.Mean()]) == {}
    assert len(finished[0]) > KEPT > len(finished[1]) > 1
    assert recent.count.tolist() == [len(finished[0]), len(finished[1])]
    risks = [rp.CVaR(0.25), rp.Mean()]
    figures = recent.figures(risks)
    for lane, risk in enumerate(risks):
        last = np.array(finished[lane][-KEPT:])
        assert figures["ep_rew_mean"][lane] == pytest.approx(last[:, RETURN].mean(), rel=1e-4)
        assert figures["ep_rew_risk"][lane] == pytest.approx(float(risk.value(last[:, DISCOUNTED])), rel=1e-4)
        assert figures["ep_len_mean"][lane] == last[:, LENGTH].mean()


def test_more_environments_than_the_ring_has_room_for():
    recent = no_recent_episodes(1, 3 * KEPT)
    ones = jnp.ones((1, 3 * KEPT))
    recent = recent.add(2 * ones, ones, jnp.zeros_like(ones, jnp.int32), jnp.ones_like(ones, bool))
    assert recent.count.tolist() == [3 * KEPT]
    np.testing.assert_array_equal(recent.ring, np.tile([2.0, 1.0, 1.0], (1, KEPT, 1)))


def test_callbacks_see_the_returns_of_training():
    seen = []
    training = dataclasses.replace(TINY_IQN["training"], learning_starts=40)
    agent = rp.IQN("cvar:0.5", **{**TINY_IQN, "training": training})
    run = rp.train(agent, "RiskyGrid", steps=200, seeds=2, callbacks=[lambda _, record: seen.append(record)])
    assert "seconds_left" not in seen[0]  # exploration only
    last = seen[-1]
    assert last["seconds_left"] == 0
    assert all(len(last[name]) == 2 for name in ("ep_rew_mean", "ep_rew_risk", "ep_len_mean", "estimate"))
    assert last["ep_len_mean"].tolist() == [6.0, 6.0]
    assert (np.asarray(run.lanes.recent.count) == run.steps // 6).all()
