"""Gymnasium spaces: observations become arrays, actions become elements of the action space."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import riskpath as rp
from riskpath.envs.spaces import Translation

from .problems import EchoEnv

UNIT = spaces.Box(0.0, 1.0, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 4, 1), np.uint8)


@pytest.mark.parametrize(
    ("space", "shape", "num_states"),
    [
        (spaces.Box(-2.0, 2.0, (3,), np.float32), (3,), None),
        (spaces.Box(-2.0, 2.0, (), np.float32), (1,), None),
        (IMAGE, (4, 4, 1), None),
        (spaces.Discrete(5, start=2), (), 5),
        (spaces.MultiDiscrete([2, 3]), (5,), None),
        (spaces.MultiBinary(4), (4,), None),
        (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0.0, 1.0, (2, 2), np.float32)}), (7,), None),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), (5,), None),
    ],
    ids=str,
)
def test_one_observation_and_a_batch_are_read_alike(space, shape, num_states):
    translation = Translation(space, spaces.Discrete(3))
    spec = translation.spec
    assert (spec.observation_shape, spec.num_states) == (shape, num_states)
    vector = SyncVectorEnv([lambda: EchoEnv(space)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    batch = translation.read_all(vector.reset(seed=[3, 4])[0])
    assert batch.dtype == spec.observation_dtype
    for row, seed in zip(batch, (3, 4), strict=True):
        space.seed(seed)
        one = translation.read(space.sample())
        assert (one.dtype, one.shape) == (batch.dtype, shape)
        np.testing.assert_array_equal(row, one)


def test_a_discrete_observation_counts_from_zero():
    assert Translation(spaces.Discrete(5, start=2), spaces.Discrete(3)).read(np.int64(4)) == 2


def test_flattened_observations_have_one_entry_for_each_category():
    space = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
    assert Translation(space, spaces.Discrete(3)).read((1, 0)).tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("space", "bounds"),
    [
        (spaces.Box(-2.0, 3.0, (3,), np.float32), ((-2.0, 3.0),)),
        (spaces.Box(np.array([0.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64), ((0.0, 1.0), (-1.0, 1.0))),
        (spaces.Box(-np.inf, np.inf, (3,), np.float32), None),
        (spaces.Box(np.array([0.0, -3e38]), np.array([1.0, 3e38]), dtype=np.float64), None),
        (IMAGE, None),
        (spaces.MultiBinary(4), None),
    ],
    ids=str,
)
def test_bounds_of_observations_are_kept_where_all_are_small(space, bounds):
    spec = Translation(space, spaces.Discrete(3)).spec
    assert spec.observation_bounds == bounds
    assert spec.pixels == (space is IMAGE)


def test_continuous_actions_are_scaled_to_their_bounds():
    space = spaces.Box(np.array([0.0, -4.0]), np.array([1.0, 2.0]), dtype=np.float64)
    translation = Translation(spaces.Discrete(2), space)
    assert (translation.spec.num_actions, translation.spec.action_size) == (0, 2)
    written = translation.write(np.array([[-1.0, 1.0], [0.0, 0.0], [3.0, -1.0]]))  # 3 is clipped to 1
    np.testing.assert_allclose(written, [[0, 2], [0.5, -1], [1, -4]])
    assert written.dtype == np.float64


def test_a_continuous_action_gets_the_shape_of_its_space():
    space = spaces.Box(-1.0, 1.0, (2, 2), np.float32)
    translation = Translation(spaces.Discrete(2), space)
    assert translation.spec.action_size == 4
    assert space.contains(translation.write(np.array([0.1, 0.2, 0.3, 0.4])))


def test_conversions_between_the_same_spaces_are_equal():
    box = lambda high: spaces.Box(-1.0, high, (2,), np.float32)
    one, same = (Translation(box(1.0), spaces.Discrete(3), 5) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != Translation(box(2.0), spaces.Discrete(3), 5)
    assert one != Translation(box(1.0), spaces.Discrete(3, start=1), 5)
    assert one != Translation(box(1.0), spaces.Discrete(3), 6)


def test_discrete_actions_start_at_the_first_action_of_their_space():
    translation = Translation(spaces.Discrete(2), spaces.Discrete(3, start=-1))
    assert translation.write(np.array([0, 2])).tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (spaces.Text(3), spaces.Discrete(2), "cannot read observations from Text; Box, Discrete"),
        (spaces.Dict({"a": spaces.Tuple([spaces.Graph(spaces.Discrete(2), None)])}), spaces.Discrete(2), "from Graph"),
        (spaces.Discrete(2), spaces.Tuple([spaces.Discrete(2), UNIT]), "cannot act in Tuple; Box, Discrete, Multi"),
        (spaces.Discrete(2), spaces.Box(-np.inf, 1.0, (1,)), "continuous actions need bounds"),
        (spaces.Discrete(2), spaces.Box(-1.0, np.inf, (1,)), "continuous actions need bounds"),
    ],
)
def test_an_unsupported_space_is_refused_in_one_line(observations, actions, message):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        Translation(observations, actions)
    assert "\n" not in str(refused.value)
