"""Pictures of ways through a maze or along roads."""

from typing import Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs import guarded_maze, patrolled_maze
from riskpath.envs.autonomous_vehicle import CORNER, TIMES, AutonomousVehicle, Crossing, road
from riskpath.envs.drawing import COLOURS, INK, MARGIN, MUTED, Episode, finished, mark, paper, picture, signed, visited
from riskpath.envs.guarded_maze import CELLS, GuardedMaze
from riskpath.envs.patrolled_maze import PatrolledMaze

PITCH = 56
"""Pixels of a cell."""
ROADS = ("#2f6da8", "#6ea8d8", "#e8b84a", "#8a949e")
"""Colours of the kinds of roads."""


@picture.register(GuardedMaze)
def draw_guarded_maze(env: GuardedMaze, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the maze and the way so far."""
    places = [CELLS[int(seen)] for seen in episode.observations]
    return _maze(guarded_maze.MAP, places, episode, env.max_episode_steps)


@picture.register(PatrolledMaze)
def draw_patrolled_maze(env: PatrolledMaze, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the maze and the way so far."""
    places = [(float(seen[0]), float(seen[1])) for seen in episode.observations]
    return _maze(patrolled_maze.MAP, places, episode, env.max_episode_steps)


def _maze(lines: tuple[str, ...], places: Any, episode: Episode, steps: int) -> UInt8[np.ndarray, "H W 3"]:
    side = PITCH * len(lines)
    canvas = paper(side + 2 * MARGIN, side + MARGIN)
    colours = {"#": MUTED, "G": COLOURS["goal"], "X": COLOURS["orange"], "S": COLOURS["start"]}

    def at(place: tuple[float, float]) -> tuple[float, float]:
        return MARGIN + (place[1] + 0.5) * PITCH, MARGIN + (place[0] + 0.5) * PITCH

    for row, line in enumerate(lines):
        for col, sign in enumerate(line):
            x, y = at((row, col))
            corner = (x - PITCH / 2 + 1, y - PITCH / 2 + 1)
            canvas.box(corner, (PITCH - 2, PITCH - 2), 3, colours.get(sign, COLOURS["free"]))
            if sign in "GX":
                canvas.text((x, y - 16), "goal" if sign == "G" else "guard", 13, INK, weight="bold")
    _way(canvas, [at(place) for place in places])
    return finished(canvas, episode, steps)


@picture.register(AutonomousVehicle)
def draw_autonomous_vehicle(env: AutonomousVehicle, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the roads in the colour of their kind, the way so far, and the possible times of each kind."""
    pitch = 110
    canvas = paper(CORNER[0] * pitch + 8 * MARGIN, CORNER[1] * pitch + 9 * MARGIN)

    def at(place: Any) -> tuple[float, float]:
        return 4 * MARGIN + place.x * pitch, 7 * MARGIN + (CORNER[1] - place.y) * pitch

    for kind, times in enumerate(TIMES):
        name = " or ".join(f"{time:g}" for time in dict.fromkeys(times))
        x = 2 * MARGIN + kind * (canvas.width - 2 * MARGIN) / len(TIMES)
        canvas.line([(x, 26), (x + 26, 26)], 8, ROADS[kind])
        canvas.text((x + 34, 26), name, 13, INK, "left")
    crossings = [Crossing(x, y) for x in range(CORNER[0] + 1) for y in range(CORNER[1] + 1)]
    for one in crossings:
        for other in (Crossing(one.x + 1, one.y), Crossing(one.x, one.y + 1)):
            if other in crossings:
                canvas.line([at(one), at(other)], 8, ROADS[road(one, other)])
    for one in crossings:
        canvas.disc(at(one), 9, COLOURS["goal" if one == CORNER else "start"])
    x, y = at(Crossing(*CORNER))
    canvas.text((x, y - 24), signed(env.arrival), 15, INK, weight="bold")
    _way(canvas, [at(place) for place in visited(env, episode)])
    return finished(canvas, episode, env.max_episode_steps)


def _way(canvas: Any, points: list[tuple[float, float]]) -> None:
    """Draw a way and where it ends."""
    canvas.line(points, 4, INK)
    mark(canvas, points[-1], 12, 6)
