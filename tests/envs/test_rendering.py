"""Pictures of environments: size and type, the agent's position, the rewards and the total."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import riskpath as rp
from riskpath.envs import BY_NAME
from riskpath.envs.canvas import Canvas
from riskpath.envs.gymnasium_env import GymnasiumEnv
from riskpath.envs.mountain_car import MAX_POSITION, MIN_POSITION
from riskpath.envs.rendering import COLOURS, FOOTER, MARGIN, Episode, has_picture, picture

from .problems import SMALL

IDS = [f"riskpath/{name}-v0" for name in BY_NAME]
RIGHT, DOWN = 0, 1


def rgb(colour: str) -> list[int]:
    return [round(255 * part) for part in to_rgb(colour)]


BRIEFLY = ("RiskyGrid", "ThreeState", "RiskyMountainCar", "MeanReversionTrading", "Driving", "Inventory")
"""One of every file with pictures."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name.split("/")[1][:-3] in BRIEFLY else pytest.mark.long) for name in IDS],
)
def test_every_step_has_its_own_picture(name):
    env: Any = gymnasium.make(name, render_mode="rgb_array", **SMALL.get(name, {}))
    action = np.ones(1, np.float32) if "Car" in name else 0
    env.reset(seed=0)
    frames = [env.render()]
    for _ in range(2):
        env.step(action)
        frames.append(env.render())
    assert all(frame.dtype == np.uint8 and frame.shape == frames[0].shape for frame in frames)
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0  # video encoders need an even size
    assert len({frame.tobytes() for frame in frames}) == 3
    env.reset(seed=0)
    assert (env.render() == frames[0]).all()  # a reset removes the episode before


@pytest.mark.parametrize("forks", [1, 3, 6, 15])
def test_the_picture_of_the_grid_shows_its_cells_and_the_agent(forks):
    grid = rp.RiskyGrid(forks=forks)
    number = {(0, 0): 0, (1, 0): 2, (1, 1): 3 if forks == 1 else 4}  # breadth-first, right before down
    path = [(0, 0), (1, 0), (1, 1)]
    image = picture(grid, Episode([number[place] for place in path], [-2.0, -2.0]))
    assert image.shape[0] % 2 == image.shape[1] % 2 == 0
    pitch = (image.shape[1] - 2 * MARGIN) // (forks + 1)

    def pixel(row: float, col: float) -> list[int]:
        return image[int(MARGIN + row * pitch), int(MARGIN + col * pitch)].tolist()

    for row, col in np.ndindex(forks + 1, forks + 1):
        assert pixel(row + 0.25, col + 0.25) == rgb(COLOURS[grid.colour(row, col)])
        if pitch > 20:
            assert (pixel(row + 0.5, col + 0.5) == [255, 255, 255]) == ((row, col) == path[-1])  # the agent
    for row, col in ((1.0, 0.5), (1.5, 1.0)):  # the path crosses these borders of cells
        assert max(pixel(row, col)) < 80
    assert min(pixel(0.5, 1.0)) > 200  # and not this one


@pytest.mark.parametrize("here", [0, 1, 2])
def test_the_current_one_of_the_three_states_is_dark(here):
    image = picture(rp.ThreeState(), Episode(list(range(here + 1)), [-5.0] * here))
    colours = [image[84, x - 28].tolist() for x in (76, 256, 436)]  # left of the name
    assert [max(colour) < 80 for colour in colours] == [number == here for number in range(3)]


@pytest.mark.parametrize("part", [slice(None, -FOOTER), slice(-FOOTER, None)], ids=["cell", "total"])
def test_the_picture_shows_the_rewards(part):
    env = GymnasiumEnv("RiskyGrid", render_mode="rgb_array")
    images: dict[float, set[bytes]] = {}
    for seed in range(12):
        env.reset(seed=seed)
        images.setdefault(env.step(DOWN)[1], set()).add(env.render()[part].tobytes())
    assert [len(different) for different in images.values()] == [1, 1]  # one picture for a win, one for a loss
    assert len(set.union(*images.values())) == 2


@pytest.mark.parametrize("position", [-1.2, -0.9, -0.5, 0.0, 0.45])
def test_the_picture_shows_the_position_of_the_car(position):
    image = picture(rp.RiskyMountainCar(), Episode([np.array([position, 0.0], np.float32)], []))
    blue = (image == rgb("#2f6da8")).all(axis=2)
    scale = image.shape[1] / (MAX_POSITION - MIN_POSITION)
    rows, columns = np.nonzero(blue)
    height = (image.shape[0] - rows.mean()) / scale
    assert height == pytest.approx(np.sin(3 * position) * 0.45 + 0.55, abs=0.06)
    if position > MIN_POSITION:  # otherwise half of the car is outside
        assert columns.mean() / scale + MIN_POSITION == pytest.approx(position, abs=0.06)


@pytest.mark.parametrize("name", ["MeanReversionTrading", "AmericanPut", "OptionHedging"])
def test_the_picture_of_a_market_shows_the_path_of_the_price(name):
    env: Any = rp.make(name)
    low, high = env.view
    prices = [low + share * (high - low) for share in (0.2, 0.4, 0.9)]
    seen = [np.array([price, *[0.5] * (len(env.first_state) - 1), step], "f") for step, price in enumerate(prices)]
    image = picture(env, Episode(seen, [0.1, 0.2]))
    rows, columns = np.nonzero((image == rgb("#2f6da8")).all(axis=2))
    heights = [rows[abs(columns - (64 + 428 * step / env.steps)) < 2].mean() for step in (0, 1)]
    assert heights == pytest.approx([248 - 200 * share for share in (0.2, 0.4)], abs=8)
    assert image[248 - 180, 64 + 428 * 2 // env.steps].tolist() == [255, 255, 255]  # the present price


def test_the_total_of_the_car_is_shown():
    start = [np.array([-0.5, 0.0], np.float32)] * 2
    images = [picture(rp.RiskyMountainCar(), Episode(start, [reward])) for reward in (-0.1, -0.1, -2.0)]
    different = np.argwhere((images[1] != images[2]).any(axis=2))
    assert (images[0] == images[1]).all()
    assert (different.min(axis=0) >= (30, 24)).all()
    assert (different.max(axis=0) <= (70, 160)).all()  # nothing but the text in the upper left corner


def test_an_environment_without_a_picture_is_refused():
    class Plain:
        pass

    assert not has_picture(Plain())
    with pytest.raises(rp.RiskpathError, match="Plain has no picture"):
        picture(Plain(), Episode([0], []))


def test_frames_per_second_suit_the_kind_of_motion():
    assert GymnasiumEnv("RiskyMountainCar").metadata["render_fps"] == 30
    assert GymnasiumEnv("RiskyGrid").metadata["render_fps"] == 4
    assert GymnasiumEnv("RandomMDP").metadata["render_fps"] == 4


@pytest.mark.parametrize(("width", "height"), [(20, 10), (506, 538), (1000, 998)])
def test_the_canvas_has_the_requested_size_and_smooth_edges(width, height):
    canvas = Canvas(width, height)
    canvas.disc((0.0, 0.0), 5, "#000000")  # a quarter is inside
    canvas.disc((float(width), float(height)), 5, "#000000")
    image = canvas.image()[:, :, 0] / 255
    assert image.shape == (height, width)
    assert ((image > 0.1) & (image < 0.9)).any()
    assert (1 - image).sum() == pytest.approx(2 * np.pi * 25 / 4, rel=0.05)


def test_later_shapes_cover_earlier_ones_and_the_background():
    canvas = Canvas(40, 40, np.full((40, 40, 3), 7, np.uint8))
    canvas.line([(0, 20), (40, 20)], 10, "#ff0000")
    canvas.disc((20, 20), 8, "#00ff00")
    image = canvas.image()
    assert [image[y, x].tolist() for y, x in ((2, 2), (20, 4), (20, 20))] == [[7, 7, 7], [255, 0, 0], [0, 255, 0]]
