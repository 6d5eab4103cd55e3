"""The annotations of the package are checked while the tests run."""

import jax.numpy as jnp
import jaxtyping
import pytest

from riskpath.nn.losses import midpoints, smooth_pinball
from tests import beartyped


def test_wrong_types_and_shapes_are_found():
    with pytest.raises(jaxtyping.TypeCheckError):
        midpoints("a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(jaxtyping.TypeCheckError):
        smooth_pinball(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros(4), jnp.asarray(0.1), jnp.zeros(4))


def test_definitions_inside_of_functions_are_checked_each_time():
    def double(x: int) -> int:
        return 2 * x

    for number in range(2):
        checked = jaxtyping.jaxtyped(double, typechecker=beartyped)
        assert checked(number) == 2 * number
        with pytest.raises(jaxtyping.TypeCheckError):
            checked("a")  # pyright: ignore[reportArgumentType]
