"""Checks of numbers: every limit from both sides."""

import math
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.errors import RiskpathError
from riskpath.validation import (
    given,
    require_counts,
    require_finite,
    require_no_less_than_zero,
    require_positive,
    require_share,
    require_whole,
    require_widths,
)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (require_whole, -3),
        (require_whole, np.int64(3)),
        (require_counts, 1),
        (partial(require_counts, 0), 0),
        (require_positive, 1e-300),
        (require_positive, jnp.array(-1.0)),  # a leaf of an agent in training
        (require_no_less_than_zero, 0),
        (require_finite, -3),
        (require_share, 0),
        (require_share, 1.0),
        (require_widths, ()),
        (require_widths, (64, 1)),
    ],
)
def test_accepted_values(check, value):
    check(n=value)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (require_whole, 1e5, "n must be a whole number, got 100000.0"),
        (require_whole, True, "n must be a whole number, got True"),
        (require_whole, None, "n must be a whole number, got None"),
        (require_counts, 0, "n must be at least 1, got 0"),
        (require_counts, "4", "n must be a whole number, got '4'"),
        (require_positive, 0, "n must be more than 0, got 0"),
        (require_positive, math.nan, "n must be more than 0, got nan"),
        (require_positive, "fast", "n must be a number, got 'fast'"),
        (require_positive, None, "n must be a number, got None"),
        (require_no_less_than_zero, -0.5, "n must be at least 0, got -0.5"),
        (require_no_less_than_zero, math.nan, "n must be at least 0, got nan"),
        (require_finite, math.nan, "n must be a finite number, got nan"),
        (require_finite, -math.inf, "n must be a finite number, got -inf"),
        (require_finite, "1", "n must be a number, got '1'"),
        (require_share, 1.5, "n must be from 0 to 1, got 1.5"),
        (require_share, -0.1, "n must be from 0 to 1, got -0.1"),
        (require_share, [0.5], "n must be a number, got [0.5]"),
        (require_widths, [64], "n must be a tuple of whole numbers, for example (64,); got [64]"),
        (require_widths, (0,), "n must be a tuple of whole numbers, for example (64,); got (0,)"),
        (require_widths, 64, "n must be a tuple of whole numbers, for example (64,); got 64"),
    ],
)
def test_refused_values(check, value, message):
    with pytest.raises(RiskpathError) as refused:
        check(n=value)
    assert str(refused.value) == message


def test_values_that_are_none_are_left_out():
    assert given(steps=None, seeds=0) == {"seeds": 0}
