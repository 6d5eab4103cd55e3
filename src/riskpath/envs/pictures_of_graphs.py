"""Pictures of problems whose states are joined by lines: three states, layers of random states, crossings of roads."""

import functools
import itertools
from typing import Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs.autonomous_vehicle import CORNER, TIMES, AutonomousVehicle, Crossing, road
from riskpath.envs.drawing import (
    COLOURS,
    INK,
    MARGIN,
    MUTED,
    WHITE,
    Episode,
    finished,
    mark,
    paper,
    picture,
    signed,
    states_of,
    visited,
)
from riskpath.envs.finite import as_finite
from riskpath.envs.random_mdp import Node, RandomMDP
from riskpath.envs.three_state import ThreeState

ROADS = ("#2f6da8", "#6ea8d8", "#e8b84a", "#8a949e")
"""Colours of the kinds of roads."""


@picture.register(ThreeState)
def draw_three_state(env: ThreeState, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
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
def draw_random_mdp(env: RandomMDP, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
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
def _empty_graph(env: RandomMDP) -> UInt8[np.ndarray, "H W 3"]:
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

    def __init__(self, env: RandomMDP, background: UInt8[np.ndarray, "H W 3"] | None = None):
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
    way = [at(place) for place in visited(env, episode)]
    canvas.line(way, 4, INK)
    mark(canvas, way[-1], 12, 6)
    return finished(canvas, episode, env.max_episode_steps)
