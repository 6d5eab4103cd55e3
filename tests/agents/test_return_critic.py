"""Laws of weighted atoms: what a draw from a cell gives back."""

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.adaptive.return_critic import cells, within_cells
from riskpath.nn.losses import midpoints


def test_draws_inside_of_cells_have_the_variance_that_atoms_lose():
    levels, probs = (np.asarray(x, float) for x in cells(16))
    draws = jnp.broadcast_to(midpoints(100)[:, None], (100, 16))
    drawn = np.asarray(jax.vmap(within_cells, (None, 0))(jnp.asarray(levels, jnp.float32), draws), float)  # uniform law
    np.testing.assert_allclose(drawn.mean(axis=0), levels, atol=1e-5)  # every atom is the mean of its cell
    variance = lambda x: x**2 @ probs - (x @ probs) ** 2
    assert 1 / 12 - variance(levels) > 4e-4
    np.testing.assert_allclose((drawn**2).mean(axis=0) @ probs - 0.25, 1 / 12, atol=1e-5)


def test_cells_whose_atoms_are_out_of_order_give_the_atoms():
    atoms = jnp.asarray([3.0, 2.0, 1.0, 0.0])
    np.testing.assert_allclose(within_cells(atoms, jnp.array([0.0, 1.0, 0.3, 0.9])), atoms)
