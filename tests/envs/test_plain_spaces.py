"""Plain descriptions of spaces read and write the same elements as Gymnasium does."""

import json

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

import riskpath as rp
from riskpath.envs.plain_spaces import build_element, choice_numbers, describe_space, flatten_element, unstack

CHOICES = {
    "Discrete": spaces.Discrete(4, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete(np.array([[3, 2], [2, 4]]), start=np.array([[1, 0], [5, 0]])),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "Tuple": spaces.Tuple([spaces.Discrete(3, start=2), spaces.MultiBinary(2)]),
}
OBSERVED = {
    **CHOICES,
    "Box": spaces.Box(-1, 1, (2, 3)),
    "number": spaces.Box(-1, 1, ()),
    "Dict": spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, ())])}),
}


@pytest.mark.parametrize("space", OBSERVED.values(), ids=OBSERVED)
def test_elements_are_flattened_as_gymnasium_does(space):
    space.seed(0)
    plain, elements = json.loads(json.dumps(describe_space(space))), [space.sample() for _ in range(5)]
    batch = concatenate(space, elements, create_empty_array(space, 5))
    assert batch_space(space, 5).contains(batch)
    for element, row in zip(elements, unstack(plain, batch), strict=True):
        expected = np.asarray(spaces.flatten(space, element), np.float32)
        np.testing.assert_array_equal(flatten_element(plain, element), expected)
        np.testing.assert_array_equal(flatten_element(plain, row), expected)


@pytest.mark.parametrize("space", CHOICES.values(), ids=CHOICES)
def test_choices_are_built_from_their_numbers(space):
    space.seed(1)
    plain = json.loads(json.dumps(describe_space(space)))
    for _ in range(5):
        element = space.sample()
        built = build_element(plain, np.array(choice_numbers(plain, element)))
        assert space.contains(built)
        assert repr(built) == repr(element)


PLAIN = describe_space(spaces.Dict({"gear": spaces.Discrete(3, start=1), "place": spaces.Box(-1, 1, (2,))}))


@pytest.mark.parametrize(
    ("element", "line"),
    [
        ({"gear": 1}, r"an observation must have the parts gear, place, got \{'gear': 1\}$"),
        ([1, [0, 0]], r"an observation must have the parts gear, place, got \[1, \[0, 0\]\]$"),
        ({"gear": 0, "place": [0, 0]}, r"an observation has a number from 1 to 3, got 0$"),
        ({"gear": 1.5, "place": [0, 0]}, r"an observation has a number from 1 to 3, got 1.5$"),
        ({"gear": 1, "place": [0]}, r"an observation has a Box of shape \(2,\), got \(1,\)$"),
        ({"gear": 1, "place": [0, np.nan]}, r"an observation must consist of finite numbers, got nan$"),
        ({"gear": "1", "place": [0, 0]}, r"an observation must consist of numbers, got '1'$"),
    ],
)
def test_what_is_no_element_is_refused_in_one_line(element, line):
    with pytest.raises(rp.RiskpathError, match=line):
        flatten_element(PLAIN, element)
