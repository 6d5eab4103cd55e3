"""Pictures of problems whose states are places: the cells of a cliff, the nodes of a layered graph."""

import functools
from typing import Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs.drawing import (
    COLOURS,
    FOOTER,
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
from riskpath.envs.windy_cliff import WindyCliff


@picture.register(WindyCliff)
def draw_windy_cliff(env: WindyCliff, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with the cliff at the bottom, the way so far, and the reward of the last step."""
    places = visited(env, episode)
    pitch = max(6, 640 // env.width // 2 * 2)  # even, because video encoders need an even size of the picture
    canvas = paper(env.width * pitch + 2 * MARGIN, env.height * pitch + MARGIN)
    gap, letters = max(1, pitch // 32), min(16.0, pitch / 5)

    def at(x: float, y: float) -> tuple[float, float]:
        return MARGIN + (x + 0.5) * pitch, MARGIN + (env.height - y - 0.5) * pitch

    for x, y in np.ndindex(env.width, env.height):
        kind = "free" if y else "start" if x == 0 else "goal" if x == env.width - 1 else "orange"
        left, top = at(x - 0.5, y + 0.5)
        canvas.box((left + gap, top + gap), (pitch - 2 * gap, pitch - 2 * gap), pitch / 10, COLOURS[kind])
        if pitch >= 40 and kind != "free":
            reward = {"start": "", "goal": signed(env.goal), "orange": signed(env.cliff)}[kind]
            canvas.text(at(x, y - 0.3), reward, letters, MUTED)
            canvas.text(at(x, y + 0.3), "" if kind == "orange" else kind, letters, INK, weight="bold")
    way = [at(place.x, place.y) for place in places]
    canvas.line(way, max(1.5, pitch / 20), "#7f8b98")
    canvas.line(way[-2:], max(2.0, pitch / 11), INK)
    mark(canvas, way[-1], pitch / 5, pitch / 9)
    if episode.rewards:
        last = f"last reward {signed(episode.rewards[-1])}"
        canvas.text((canvas.width / 2, canvas.height - FOOTER / 2), last, 15, MUTED)
    return finished(canvas, episode, env.horizon)


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
