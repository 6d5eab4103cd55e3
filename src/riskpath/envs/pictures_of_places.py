"""Pictures of problems whose states are places: cells of a board, or points that are joined by lines."""

import functools
import itertools
from typing import Any

import numpy as np

from riskpath.envs import guarded_maze, patrolled_maze
from riskpath.envs.autonomous_vehicle import CORNER, TIMES, AutonomousVehicle, Crossing, road
from riskpath.envs.drawing import (
    COLOURS,
    FOOTER,
    INK,
    MARGIN,
    MUTED,
    WHITE,
    Episode,
    Image,
    finished,
    mark,
    paper,
    picture,
    signed,
    states_of,
    visited,
)
from riskpath.envs.finite import as_finite
from riskpath.envs.guarded_maze import CELLS, GuardedMaze
from riskpath.envs.patrolled_maze import PatrolledMaze
from riskpath.envs.random_mdp import Node, RandomMDP
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.envs.windy_cliff import WindyCliff

ROADS = ("#2f6da8", "#6ea8d8", "#e8b84a", "#8a949e")
"""Colours of the kinds of roads."""
Place = tuple[float, float]
"""Row and column; (0, 0) is the middle of the first cell."""


class _Board:
    """A canvas with square cells."""

    def __init__(self, rows: int, cols: int, background: Image | None = None):
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
def draw_grid(env: RiskyGrid, episode: Episode) -> Image:
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
def _empty_grid(env: RiskyGrid) -> Image:
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
def draw_windy_cliff(env: WindyCliff, episode: Episode) -> Image:
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
def draw_guarded_maze(env: GuardedMaze, episode: Episode) -> Image:
    """Draw the maze and the way so far."""
    return _draw_maze(guarded_maze.MAP, [CELLS[int(seen)] for seen in episode.observations], episode, env)


@picture.register(PatrolledMaze)
def draw_patrolled_maze(env: PatrolledMaze, episode: Episode) -> Image:
    """Draw the maze and the way so far."""
    return _draw_maze(patrolled_maze.MAP, [tuple(map(float, seen)) for seen in episode.observations], episode, env)


def _draw_maze(lines: tuple[str, ...], places: Any, episode: Episode, env: Any) -> Image:
    board = _Board(len(lines), len(lines[0]))
    colours = {"#": MUTED, "G": COLOURS["goal"], "X": COLOURS["orange"], "S": COLOURS["start"]}
    for row, line in enumerate(lines):
        for col, sign in enumerate(line):
            board.cell((row, col), colours.get(sign, COLOURS["free"]), {"G": "goal", "X": "guard"}.get(sign, ""))
    board.way(places)
    return finished(board.canvas, episode, env.max_episode_steps)


@picture.register(ThreeState)
def draw_three_state(env: ThreeState, episode: Episode) -> Image:
    """Draw the three states in a row; between them the possible rewards, or the one received."""
    canvas = paper(512, 156)
    places = [(76.0, 84.0), (256.0, 84.0), (436.0, 84.0)]
    here = len(episode.rewards)
    for step, (left, right) in enumerate(itertools.pairwise(places)):
        middle, height = (left[0] + right[0]) / 2, left[1]
        canvas.line([left, right], 6, INK if step < here else COLOURS["start"])
        if step < here:
            canvas.text((middle, height - 20), signed(episode.rewards[step]), 16, INK, weight="bold")
        else:
            canvas.text((middle, height - 20), f"{signed(env.win)} or {signed(env.lose)}", 13, MUTED)
            canvas.text((middle, height + 20), signed(env.safe), 13, MUTED)
    for number, (place, name) in enumerate(zip(places, ("s0", "s1", "end"), strict=True)):
        canvas.disc(place, 36, INK if number == here else COLOURS["goal" if name == "end" else "blue"])
        canvas.text(place, name, 17, WHITE if number == here else INK)
    return finished(canvas, episode, 2)


@picture.register(RandomMDP)
def draw_random_mdp(env: RandomMDP, episode: Episode) -> Image:
    """Draw the layers of states with all possible steps between them, the way so far and its rewards."""
    graph = _Graph(env, _empty_graph(env))
    nodes: list[Node] = visited(env, episode)
    way = [graph.at(node) for node in nodes]
    graph.canvas.line(way, max(2.0, graph.radius / 4), INK)
    for node in nodes:
        graph.node(node, INK if node == nodes[-1] else COLOURS["blue"])
    for (left, above), (right, below), reward in zip(way[:-1], way[1:], episode.rewards, strict=True):
        if graph.radius >= 9:
            middle = ((left + right) / 2, (above + below) / 2)
            graph.canvas.disc(middle, 15, WHITE)
            graph.canvas.text(middle, signed(reward), 14, INK, weight="bold")
    return finished(graph.canvas, episode, env.depth)


@functools.lru_cache(maxsize=8)
def _empty_graph(env: RandomMDP) -> Image:
    """Draw the states and the possible steps; this part of the picture never changes."""
    graph, problem = _Graph(env), as_finite(env).mdp()
    for state in states_of(env):
        following: dict[Any, None] = dict.fromkeys(o.next for a in problem.outcomes.get(state, {}).values() for o in a)
        for node in following:
            graph.canvas.line([graph.at(state), graph.at(node)], 1.5, "#ccd5de")
    for state in states_of(env):
        graph.node(state, COLOURS["start" if state.layer < env.depth else "goal"])
    return graph.canvas.image()


class _Graph:
    """A canvas with a column for each layer of states."""

    def __init__(self, env: RandomMDP, background: Image | None = None):
        self.env = env
        self.across, self.down = 560 / env.depth, min(100.0, 320 / env.width)
        self.radius = max(2.0, min(20.0, self.across / 5, self.down / 3))
        height = int(env.width * self.down) // 2 * 2
        self.canvas = paper(640, height + MARGIN, background)
        self.middle = MARGIN + height / 2

    def at(self, node: Node) -> tuple[float, float]:
        """Return the middle of a node."""
        siblings = self.env.width if 0 < node.layer < self.env.depth else 1
        return 40 + node.layer * self.across, self.middle + (node.number - (siblings - 1) / 2) * self.down

    def node(self, node: Node, colour: str) -> None:
        """Draw a node with its number."""
        self.canvas.disc(self.at(node), self.radius, colour)
        if self.radius >= 9:
            text = "end" if node.layer == self.env.depth else str(node.number)
            self.canvas.text(self.at(node), text, self.radius * 0.8, WHITE if colour == INK else INK)


@picture.register(AutonomousVehicle)
def draw_autonomous_vehicle(env: AutonomousVehicle, episode: Episode) -> Image:
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
    way = [at(place) for place in visited(env, episode)]
    canvas.line(way, 4, INK)
    mark(canvas, way[-1], 12, 6)
    return finished(canvas, episode, env.max_episode_steps)
