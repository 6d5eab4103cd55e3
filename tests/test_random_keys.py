"""Keys of this library beside those of JAX: the same numbers, bit for bit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.random_keys import DEFAULT, from_data, kind_of, new_key

data = jax.random.key_data
DRAWS: dict[str, Callable[[Any], Any]] = {
    "two keys": lambda key: data(jax.random.split(key)),
    "a table of keys": lambda key: data(jax.random.split(key, (2, 3))),
    "fold in": lambda key: data(jax.random.fold_in(key, 13)),
    "bytes": lambda key: jax.random.bits(key, (3,), jnp.uint8),
    "short words": lambda key: jax.random.bits(key, (3,), jnp.uint16),
    "words": lambda key: jax.random.bits(key, (3, 5)),
    "one number": jax.random.uniform,
    "none": lambda key: jax.random.uniform(key, (0,)),
    "normal": lambda key: jax.random.normal(key, (7,)),
    "integers": lambda key: jax.random.randint(key, (4,), 0, 100),
    "permutation": lambda key: jax.random.permutation(key, 10),
    "for several keys": lambda key: jax.vmap(lambda k: jax.random.uniform(k, (3,)))(jax.random.split(key, 4)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_numbers_are_those_of_jax(draw: Callable[[Any], Any], seed: int):
    np.testing.assert_array_equal(jax.jit(lambda: draw(new_key(seed)))(), jax.jit(lambda: draw(jax.random.key(seed)))())


def test_long_words_are_those_of_jax():
    with jax.enable_x64(True):
        ours, theirs = (jax.random.bits(make(2**40 + 5), (3,), jnp.uint64) for make in (new_key, jax.random.key))
        np.testing.assert_array_equal(ours, theirs)


def test_a_program_has_no_loop():
    assert (
        "while"
        not in jax.jit(lambda key: jax.random.uniform(jax.random.split(key)[0], (5,))).lower(new_key(0)).as_text()
    )


def test_keys_come_back_from_their_numbers():
    keys = jax.random.split(new_key(3), 4)
    assert from_data(data(keys)).dtype == keys.dtype
    assert kind_of(keys) == kind_of(jax.random.key(3)) == DEFAULT


def test_another_default_of_the_user_is_respected():
    with jax.default_prng_impl("rbg"):
        assert new_key(0).dtype == jax.random.key(0).dtype
        assert kind_of(new_key(0)) == "rbg"
