"""Pictures of problems whose states are square cells, or places on them: grids, a cliff, mazes."""

import functools
from typing import Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs import guarded_maze, patrolled_maze
from riskpath.envs.drawing import (
    COLOURS,
    FOOTER,
    INK,
    MARGIN,
    MUTED,
    Episode,
    finished,
    mark,
    paper,
    picture,
    signed,
    states_of,
    visited,
)
from riskpath.envs.guarded_maze import CELLS, GuardedMaze
from riskpath.envs.patrolled_maze import PatrolledMaze
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.windy_cliff import WindyCliff

Place = tuple[float, float]
"""Row and column; (0, 0) is the middle of the first cell."""


class _Board:
    """A canvas with square cells."""

    def __init__(self, rows: int, cols: int, background: UInt8[np.ndarray, "H W 3"] | None = None):
        self.pitch = max(6, (480 if rows == cols else 640) // cols // 2 * 2)  # even: video encoders need even sizes
        self.letters = min(16.0, self.pitch / 6)
        self.canvas = paper(cols * self.pitch + 2 * MARGIN, rows * self.pitch + MARGIN, background)

    def at(self, place: Place, down: float = 0.0, right: float = 0.0) -> tuple[float, float]:
        """Return the pixel of a place, or that far from it in cells."""
        row, col = place
        return MARGIN + (col + right + 0.5) * self.pitch, MARGIN + (row + down + 0.5) * self.pitch

    def cell(self, place: Place, colour: str, name: str = "") -> None:
        """Draw a cell with its name."""
        (left, top), gap = self.at(place, -0.5, -0.5), max(1, self.pitch // 32)
        side = self.pitch - 2 * gap
        self.canvas.box((left + gap, top + gap), (side, side), self.pitch / 10, colour)
        self.text(place, -0.33, 0.0, name, INK, weight="bold")

    def text(self, place: Place, down: float, right: float, text: str, colour: str, *align: str, **style: str) -> None:
        """Write into a cell, if text fits."""
        if self.pitch >= 48 and text:
            self.canvas.text(self.at(place, down, right), text, self.letters, colour, *align, **style)

    def way(self, places: list[Place]) -> None:
        """Draw a way and where it ends."""
        self.canvas.line([self.at(place) for place in places], max(2.0, self.pitch / 10), INK)
        mark(self.canvas, self.at(places[-1]), self.pitch / 5, self.pitch / 9)


@picture.register(RiskyGrid)
def draw_grid(env: RiskyGrid, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their rewards, the path so far with the rewards received, and the agent."""
    states = states_of(env)
    path = [states[number] for number in episode.observations]
    board = _Board(env.forks + 1, env.forks + 1, _empty_grid(env))
    for cell in path:
        _draw_cell(board, cell)  # over the text on the empty board
    board.way([(cell.row, cell.col) for cell in path])
    for cell, reward in zip(path[1:], episode.rewards, strict=True):
        board.text((cell.row, cell.col), 0.34, 0.4, signed(reward), INK, "right", weight="bold")  # beside the path
    return finished(board.canvas, episode, 2 * env.forks)


@functools.lru_cache(maxsize=8)
def _empty_grid(env: RiskyGrid) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their possible rewards; this part of the picture takes the longest, and never changes."""
    board = _Board(env.forks + 1, env.forks + 1)
    for cell in (env.cell(row, col) for row, col in np.ndindex(env.forks + 1, env.forks + 1)):
        _draw_cell(board, cell)
        if cell.colour != "start":
            rewards = [signed(reward) for prob, reward in env.rewards(cell) if prob]
            lines = [" or ".join(rewards)] if board.pitch >= 96 else rewards
            for line, text in enumerate(lines):
                down = (line - (len(lines) - 1) / 2) * 1.3 * board.letters / board.pitch
                board.text((cell.row, cell.col), down, 0.0, text, MUTED)
    return board.canvas.image()


def _draw_cell(board: _Board, cell: Any) -> None:
    board.cell((cell.row, cell.col), COLOURS[cell.colour], cell.colour if cell.colour in ("start", "goal") else "")


@picture.register(WindyCliff)
def draw_windy_cliff(env: WindyCliff, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with the cliff at the bottom, the way so far, and the reward of the last step."""
    board = _Board(env.height, env.width)
    last = (env.height - 1, env.width - 1)
    for row, col in np.ndindex(env.height, env.width):
        kind = "free" if row < last[0] else "start" if col == 0 else "goal" if col == last[1] else "orange"
        board.cell((row, col), COLOURS[kind], kind if kind in ("start", "goal") else "")
        reward = {"goal": signed(env.goal), "orange": signed(env.cliff)}.get(kind, "")
        board.text((row, col), 0.3, 0.0, reward, MUTED)
    way = [(last[0] - place.y, place.x) for place in visited(env, episode)]
    board.canvas.line([board.at(place) for place in way], max(1.5, board.pitch / 20), "#7f8b98")
    board.way(way[-2:])
    if episode.rewards:
        text = f"last reward {signed(episode.rewards[-1])}"
        board.canvas.text((board.canvas.width / 2, board.canvas.height - FOOTER / 2), text, 15, MUTED)
    return finished(board.canvas, episode, env.horizon)


@picture.register(GuardedMaze)
def draw_guarded_maze(env: GuardedMaze, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the maze and the way so far."""
    return _draw_maze(guarded_maze.MAP, [CELLS[int(seen)] for seen in episode.observations], episode, env)


@picture.register(PatrolledMaze)
def draw_patrolled_maze(env: PatrolledMaze, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the maze and the way so far."""
    return _draw_maze(patrolled_maze.MAP, [tuple(map(float, seen)) for seen in episode.observations], episode, env)


def _draw_maze(lines: tuple[str, ...], places: Any, episode: Episode, env: Any) -> UInt8[np.ndarray, "H W 3"]:
    board = _Board(len(lines), len(lines[0]))
    colours = {"#": MUTED, "G": COLOURS["goal"], "X": COLOURS["orange"], "S": COLOURS["start"]}
    for row, line in enumerate(lines):
        for col, sign in enumerate(line):
            board.cell((row, col), colours.get(sign, COLOURS["free"]), {"G": "goal", "X": "guard"}.get(sign, ""))
    board.way(places)
    return finished(board.canvas, episode, env.max_episode_steps)
