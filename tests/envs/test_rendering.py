"""Pictures of environments."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.rendering import CELLS, FOOTER, Canvas

DRAWN = ["riskpath/RiskyGrid-v0", "riskpath/ThreeState-v0"]
RIGHT, DOWN = 0, 1


@pytest.mark.parametrize("name", DRAWN)
def test_every_position_has_its_own_picture(name):
    env: Any = gymnasium.make(name, render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    over = False
    while not over:
        *_, over, _, _ = env.step(0)
        frames.append(env.render())
    assert all(frame.dtype == np.uint8 and frame.shape == frames[0].shape for frame in frames)
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0  # video encoders need an even size
    assert len({frame.tobytes() for frame in frames}) == len(frames) == env.unwrapped.sizes.max_episode_steps + 1
    env.reset()
    assert (env.render() == frames[0]).all()  # a reset removes the episode before


@pytest.mark.parametrize("forks", [1, 3, 5, 15])
def test_the_picture_of_the_grid_shows_its_cells_and_the_agent(forks):
    grid = rp.RiskyGrid(forks=forks)
    env = GymnasiumEnv(grid, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(DOWN)
    image = env.render()
    pitch = (image.shape[1] - 32) // (forks + 1)
    for row in range(forks + 1):
        for col in range(forks + 1):
            top, left = 16 + row * pitch, 16 + col * pitch
            colour = CELLS[grid.colour(row, col)]
            corner = image[top + pitch // 5, left + pitch // 5]
            assert corner.tolist() == [colour >> 16, colour >> 8 & 255, colour & 255]
            centre = image[top + pitch // 2, left + pitch // 2]
            if pitch > 20:
                assert (centre.tolist() == [255, 255, 255]) == ((row, col) == (1, 0))
    assert (image[16 + pitch, 16 + pitch // 2] < 60).all()  # the path from the start


@pytest.mark.parametrize("part", [slice(None, -FOOTER), slice(-FOOTER, None)], ids=["cell", "total"])
def test_the_picture_shows_the_rewards(part):
    env = GymnasiumEnv("RiskyGrid", render_mode="rgb_array")
    images: dict[float, set[bytes]] = {}
    for seed in range(12):
        env.reset(seed=seed)
        images.setdefault(env.step(DOWN)[1], set()).add(env.render()[part].tobytes())
    assert [len(seen) for seen in images.values()] == [1, 1]  # one picture for a win, one for a loss
    assert len(set.union(*images.values())) == 2


def test_the_picture_of_the_car_moves_with_it():
    env: Any = gymnasium.make("riskpath/RiskyMountainCar-v0", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(np.ones(1, np.float32))
    assert before.dtype == np.uint8
    assert (env.render() != before).any()
    assert env.metadata["render_fps"] == 30


def test_a_shape_at_the_border_is_cut_off_and_its_edge_is_smooth():
    canvas = Canvas(20, 10)
    canvas.disc((0.0, 0.0), 5, 0)
    canvas.disc((20.0, 10.0), 5, 0)
    image = canvas.bytes()[:, :, 0] / 255
    assert (image == image[::-1, ::-1]).all()
    assert ((image > 0.1) & (image < 0.9)).any()
    assert (1 - image).sum() == pytest.approx(2 * np.pi * 25 / 4, rel=0.02)
