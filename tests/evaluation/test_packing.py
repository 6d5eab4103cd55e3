"""The packing of a PyTree into a few arrays."""

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.evaluation.packing import SMALL, Layout


def tree() -> dict:
    return {
        "keys": jax.random.split(jax.random.key(1), 3),
        "large": jnp.arange(SMALL + 1.0),
        "numbers": (jnp.ones((2, 3)), jnp.zeros(()), "text", 4),
        "flags": jnp.array([True, False]),
        "counts": jnp.arange(5),
    }


def plain(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def test_what_was_packed_comes_back():
    layout = Layout.of(tree())
    arrays = layout.pack(tree())
    assert len(arrays) == 5  # the large one, and one of each type
    back = layout.tree(layout.unpack(arrays))
    assert back["numbers"][2:] == ("text", 4)
    assert jax.tree.structure(back) == jax.tree.structure(tree())
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree()), strict=True):
        if isinstance(a, jax.Array):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(plain(a), plain(b))


def test_equal_layouts_are_one_object():
    assert Layout.of(tree()) is Layout.of(tree())
    assert Layout.of(tree()) is not Layout.of({**tree(), "counts": jnp.arange(6)})
    assert Layout.of({"a": jnp.ones(2), "b": 1}) is not Layout.of({"a": jnp.ones(2), "b": 2})
