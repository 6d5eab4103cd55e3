"""What turns observations into vectors: statistics, convolutions, and that both are trained, used and kept."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.replay_buffer import add, gather, make_replay_buffer
from riskpath.envs.spaces import Translation
from riskpath.errors import RiskpathError
from riskpath.nn.observation_encoder import Convolutions, ObservationEncoder, RunningStatistics
from riskpath.types import EnvSpec, Transition

KEY = jax.random.key(0)
SMALL = rp.Training(
    batch_size=16, num_quantiles=8, num_target_quantiles=8, num_action_quantiles=8, buffer_size=500, learning_starts=100
)


@pytest.mark.parametrize("sizes", [(5,), (1, 1, 7), (32, 32, 32)])
def test_statistics_are_those_of_everything_seen(sizes):
    sample = np.random.default_rng(0).normal([3.0, -200.0], [0.1, 50.0], (sum(sizes), 2)).astype(np.float32)
    seen = RunningStatistics(2)
    for part in np.split(sample, np.cumsum(sizes)[:-1]):
        seen = seen.update(jnp.asarray(part))
    np.testing.assert_allclose(seen.mean, sample.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(seen.variance, sample.var(axis=0), rtol=2e-3)
    np.testing.assert_allclose(seen.normalize(seen.mean + jnp.sqrt(seen.variance)), [1.0, 1.0], rtol=1e-3)
    assert float(jnp.abs(seen.normalize(jnp.full((2,), 1e9))).max()) == 10.0


def test_a_gradient_leaves_statistics_alone():
    gradient = jax.grad(lambda seen: jnp.sum(seen.normalize(jnp.ones(2))))(
        RunningStatistics(2).update(jnp.ones((4, 2)) * 2)
    )
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("shape", [(7, 7, 3), (8, 5, 1)])
def test_patches_and_a_product_are_a_convolution(shape):
    net = Convolutions(shape[-1], (4,), key=KEY)
    image = jax.random.normal(KEY, shape)
    kernel = net.layers[0].weight.reshape(4, 3, 3, shape[-1]).transpose(1, 2, 3, 0)
    padding = [(1, 1), (1, 1)]
    expected = jax.lax.conv_general_dilated(
        image[None], kernel, (2, 2), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
    )[0, :, : (shape[1] + 1) // 2][: (shape[0] + 1) // 2]
    bias = net.layers[0].bias
    assert bias is not None
    expected = np.maximum(np.asarray(expected) + np.asarray(bias), 0.0)
    np.testing.assert_allclose(net(image), expected.ravel(), atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "channels", "size"),
    [
        (EnvSpec(2, (7, 7, 3), pixels=True), None, 2 * 2 * 32),
        (EnvSpec(2, (84, 84, 3), pixels=True), None, 3 * 3 * 32),
        (EnvSpec(2, (4, 84, 84), pixels=True), None, 3 * 3 * 32),
        (EnvSpec(2, (7, 7, 3), pixels=True), (), 147),
        (EnvSpec(2, (9, 9)), (8,), 5 * 5 * 8),
        (EnvSpec(2, (9, 9)), None, 81),
        (EnvSpec(2, (), 6), None, 6),
    ],
)
def test_sizes(spec, channels, size):
    encoder = eqx.filter_jit(ObservationEncoder)(spec, False, channels, key=KEY)
    shown = jnp.ones(spec.observation_shape, spec.observation_dtype)
    assert eqx.filter_eval_shape(encoder, shown).shape == (size,) == (encoder.size,)


def encode_all(encoder: ObservationEncoder, observations: Any) -> np.ndarray:
    return np.asarray(eqx.filter_jit(eqx.filter_vmap(encoder))(jnp.asarray(observations)))


def test_states_with_coordinates_are_numbers_and_places():
    places = tuple((x / 2 - 1.0, 1.0 - y) for x in range(5) for y in range(3))
    spec = EnvSpec(2, (), 15, state_coordinates=places)
    encoder = ObservationEncoder(spec, True, None, key=KEY)
    found = encode_all(encoder, np.arange(15, dtype=np.int32))
    assert found.shape == (15, encoder.size) == (15, 17)
    np.testing.assert_array_equal(found[:, :15], np.eye(15))
    np.testing.assert_allclose(found[:, 15:], places)
    assert ObservationEncoder(EnvSpec(2, (), 15), True, None, key=KEY).size == 15


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("levels", [2, 3, 4, 33, 64])
def test_an_entry_with_few_values_tells_all_of_them_apart(levels, normalize):
    spec = EnvSpec(2, (1,), observation_bounds=((5.0, 5.0 + levels - 1),), observation_levels=(levels,))
    encoder = ObservationEncoder(spec, normalize, None, key=KEY)
    values = 5.0 + np.arange(levels, dtype=np.float32)[:, None]
    found = encode_all(encoder, values)
    assert found.shape == (levels, encoder.size)
    np.testing.assert_allclose(found[:, 0], np.linspace(-1.0, 1.0, levels), atol=1e-6)
    waves = np.arange(1, encoder.size)[None, :] * (found[:, :1] + 1) / 2
    np.testing.assert_allclose(found[:, 1:], np.cos(np.pi * waves), atol=1e-4)
    # With a constant, which every layer has, any function of the values is linear in the features.
    with_constant = np.concatenate([found, np.ones((levels, 1))], axis=1)
    assert np.linalg.matrix_rank(with_constant, tol=1e-3) == levels
    # Statistics change nothing.
    np.testing.assert_array_equal(encode_all(encoder.update_statistics(jnp.asarray(values)), values), found)


@pytest.mark.parametrize(
    ("levels", "waves", "counts"),
    [
        (None, 0, ()),
        (None, 8, (8, 8)),
        ((4, 0), 0, (2, 0)),
        ((4, 0), 8, (2, 8)),
        ((2, 2), 8, ()),  # two values need nothing but themselves
        ((1, 4), 8, (0, 2)),  # one value says nothing
        ((1_000, 0), 0, (255, 0)),
    ],
)
def test_cosines_are_as_many_as_the_values_need(levels, waves, counts):
    spec = EnvSpec(2, (2,), observation_bounds=((0.0, 3.0), (-2.0, 2.0)), observation_levels=levels)
    encoder = ObservationEncoder(spec, True, None, waves, key=KEY)
    assert encoder.waves == counts
    assert encoder(jnp.array([1.0, 1.0])).shape == (encoder.size,) == (2 + sum(counts),)


def test_entries_are_scaled_by_bounds_where_their_values_are_known_and_by_statistics_elsewhere():
    spec = EnvSpec(2, (2,), observation_bounds=((0.0, 4.0), (-100.0, 100.0)), observation_levels=(5, 0))
    encoder = ObservationEncoder(spec, True, None, key=KEY)
    sample = np.stack([np.arange(40) % 5, np.random.default_rng(0).normal(3.0, 0.5, 40)], axis=1).astype(np.float32)
    found = encode_all(encoder.update_statistics(jnp.asarray(sample)), sample)
    np.testing.assert_allclose(found[:, 0], sample[:, 0] / 2 - 1, atol=1e-6)
    np.testing.assert_allclose(found[:, 1], (sample[:, 1] - sample[:, 1].mean()) / sample[:, 1].std(), rtol=1e-2)
    bounded = encode_all(ObservationEncoder(spec, False, None, key=KEY), sample)
    np.testing.assert_allclose(bounded[:, 1], sample[:, 1] / 100, rtol=1e-5)


def test_cosines_of_a_normalised_entry_reach_three_deviations():
    encoder = ObservationEncoder(EnvSpec(2, (1,)), True, None, 4, key=KEY)  # a mean of 0 and a deviation of 1
    found = encode_all(encoder, np.array([[-3.0], [0.0], [1.5], [3.0], [9.0]], np.float32))
    np.testing.assert_allclose(found[:, 0], [-3.0, 0.0, 1.5, 3.0, 9.0], rtol=1e-5)
    place = np.array([0.0, 0.5, 0.75, 1.0, 1.0])[:, None] * np.arange(1, 5)
    np.testing.assert_allclose(found[:, 1:], np.cos(np.pi * place), atol=1e-5)


def test_many_entries_get_no_cosines():
    spec = EnvSpec(2, (40,), observation_levels=(5,) * 40, observation_bounds=((0.0, 4.0),))
    assert ObservationEncoder(spec, True, None, 8, key=KEY).size == 40


@pytest.mark.parametrize("spec", [EnvSpec(2, (4,)), EnvSpec(2, (), 6)])
def test_channels_are_for_images(spec):
    with pytest.raises(RiskpathError, match="conv_channels need images"):
        ObservationEncoder(spec, False, (8,), key=KEY)


def test_images_of_bytes_stay_bytes():
    translation = Translation(gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8), gymnasium.spaces.Discrete(2))
    assert translation.spec.pixels
    assert translation.read_all(np.full((4, 7, 7, 3), 200, np.uint8)).dtype == np.uint8
    flat = Translation(gymnasium.spaces.Box(0, 255, (8,), np.uint8), gymnasium.spaces.Discrete(2))
    assert not flat.spec.pixels


@pytest.mark.parametrize("shape", [(7, 7, 3), *(pytest.param(size, marks=pytest.mark.long) for size in ((4, 4), (5,)))])
def test_the_replay_keeps_bytes_as_bytes(shape):
    pictures = jax.random.randint(KEY, (6, 2, *shape), 0, 256).astype(jnp.uint8)
    zero, false, whole = jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    one = lambda picture: Transition(
        picture, whole, zero, picture, jnp.ones((1,), bool), false, false, whole, zero, zero
    )
    ring = make_replay_buffer(one(pictures[0, 0]), 4, 2)
    assert ring.rows.shape[-1] == 2 * -(-np.prod(shape) // 4) + 8
    for two in pictures:
        ring = add(ring, jax.vmap(one)(two))
    found = gather(ring, jnp.array([[3, 0]]), jnp.array([[1, 0]]), 0)  # the latest row of one, the oldest of the other
    np.testing.assert_array_equal(found.observation[0], [pictures[5, 1], pictures[2, 0]])
    np.testing.assert_array_equal(found.next_observation, found.observation)


class Signal(gymnasium.Env):
    """One step: the picture's left or right half is bright, and the action is to say which."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, image: bool):
        shape, top, kind = ((6, 6, 1), 255, np.uint8) if image else ((2,), np.inf, np.float32)
        self.observation_space = gymnasium.spaces.Box(0, top, shape, kind)
        self.image = image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(2))
        if self.image:
            obs = np.zeros((6, 6, 1), np.uint8)
            obs[:, 3 * self.right : 3 * self.right + 3] = 255
        else:  # far from the order of 1: what tells the sides apart is a thousandth of what there is
            obs = np.array([1e4 + 10 * self.right, 1e4], np.float32)
        self.obs = obs
        return obs, {}

    def step(self, action):
        return self.obs, float(action == self.right), True, False, {}


@pytest.mark.long
@pytest.mark.parametrize("image", [True, False], ids=["image", "normalised"])
def test_what_is_sensed_is_learned_used_and_kept(image, tmp_path, unchecked):
    network = rp.Network(hidden=(16,), normalize_observations=not image)
    agent = rp.IQN(rp.Mean(), discount=1.0, network=network, training=SMALL)
    run = rp.train(agent, lambda: Signal(image), steps=800, seeds=2)
    assert run.lanes.time_step.observation.dtype == (np.uint8 if image else np.float32)
    assert run.evaluate(50).returns.mean() > 0.95
    run.save(tmp_path / "run")
    loaded = rp.load(tmp_path / "run", env=lambda: Signal(image))
    for side in (0, 1):
        env = Signal(image)
        obs = next(obs for obs, _ in (env.reset(seed=i) for i in range(20)) if env.right == side)
        assert loaded.policy(seed=1)(obs)[0] == side


@pytest.mark.long  # IQN is trained in the test before, all agents act on images in tests/agents/test_agent.py
@pytest.mark.parametrize("agent", [rp.IQTD3, rp.TQL, rp.TQLContinuous], ids=lambda kind: kind.__name__)
def test_every_agent_can_normalise_and_see_images(agent, unchecked):
    class Picture(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9.0, 9.0, (5, 5, 3), np.float32)  # bytes are never normalised
        action_space = (
            gymnasium.spaces.Discrete(2) if agent is rp.TQL else gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.2), False, {}

    network = rp.Network(hidden=(8,), conv_channels=(4,), history_size=4, window=2, normalize_observations=True)
    few: Any = {
        "batch_size": 8,
        "num_quantiles": 4,
        "num_target_quantiles": 4,
        "num_action_quantiles": 4,
        "buffer_size": 200,
        "learning_starts": 40,
    }
    training = rp.Training(**few, train_freq=4, target_update_interval=5)
    fewer: Any = {"convolved_taus": 4} if agent is rp.TQLContinuous else {}
    run = rp.train(agent(network=network, training=training, **fewer), Picture, steps=120)
    assert np.isfinite(run.estimates()).all()
    counts = [leaf for leaf in jax.tree.leaves(run.lanes.agent_state.params) if leaf.shape == (1, 75)]
    assert counts
    assert all(np.isfinite(leaf).all() for leaf in counts)
