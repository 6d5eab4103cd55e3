"""Pictures of problems whose episode is a chart: time runs from left to right."""

from collections.abc import Iterable

import numpy as np

from riskpath.envs.betting_game import BettingGame
from riskpath.envs.drawing import (
    COLOURS,
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
    visited,
)
from riskpath.envs.gamblers_ruin import GamblersRuin
from riskpath.envs.inventory import Inventory
from riskpath.envs.liquidation import Liquidation
from riskpath.envs.market import MarketProblem
from riskpath.envs.river_swim import RiverSwim
from riskpath.envs.servers import LEAST, MOST, Servers

WIDTH, LEFT, TOP = 600, 64, 44.0
"""Pixels of a chart, left of its columns for the scale, and above its bars for the rewards."""


class _Chart:
    """A canvas with columns for the times 0, …, `steps`, numbered below."""

    def __init__(self, steps: int, height: int):
        self.canvas = paper(WIDTH, height)
        self.pitch = (WIDTH - LEFT - MARGIN) / (steps + 1)
        self.letters = min(14.0, self.pitch / 3.4)
        self.base = height - 26
        every = -(-22 // max(1, int(self.pitch)))
        for time in range(0, steps + 1, every):
            self.canvas.text((self.x(time), height - 12), str(time), 12, MUTED)

    def x(self, time: float) -> float:
        """Return the middle of a column."""
        return LEFT + (time + 0.5) * self.pitch

    def level(self, y: float, name: str, colour: str = "#dde4ec") -> None:
        """Draw a horizontal line with its name at the left."""
        self.canvas.line([(LEFT, y), (WIDTH - MARGIN, y)], 1.5, colour)
        self.canvas.text((LEFT - 8, y), name, 12, MUTED, "right")

    def bar(self, time: float, top: float, bottom: float, colour: str) -> None:
        """Fill a bar in a column."""
        side = self.pitch * 0.32
        if bottom - top >= 1:
            radius = min(5.0, (bottom - top) / 2, side)
            self.canvas.box((self.x(time) - side, top), (2 * side, bottom - top), radius, colour)

    def text(self, time: float, y: float, text: str, colour: str = INK, weight: str = "normal") -> None:
        """Write into a column, if text fits."""
        if self.letters >= 8:
            self.canvas.text((self.x(time), y), text, self.letters, colour, weight=weight)

    def rewards(self, y: float, rewards: Iterable[float]) -> None:
        """Write every reward between the columns before and after it, if text fits."""
        if self.letters >= 8:
            self.canvas.text((LEFT - 8, y), "reward", 12, MUTED, "right")
        for time, reward in enumerate(rewards):
            self.text(time + 0.5, y, signed(round(reward, 2)), INK, "bold")


@picture.register(BettingGame)
def draw_betting_game(env: BettingGame, episode: Episode) -> Image:
    """Draw the money after every round, on the scale of its square root."""
    return _draw_purses(env, episode, env.max_money, (env.start_money, env.max_money / 4), power=0.5)


@picture.register(GamblersRuin)
def draw_gamblers_ruin(env: GamblersRuin, episode: Episode) -> Image:
    """Draw the coins after every round below the target."""
    return _draw_purses(env, episode, env.target, (env.start_money,), power=1.0)


def _draw_purses(
    env: BettingGame | GamblersRuin, episode: Episode, most: float, levels: tuple[float, ...], power: float
) -> Image:
    """Draw the money after every round as a bar, and the gains between the bars."""
    purses = visited(env, episode)
    chart = _Chart(env.rounds, 320)
    height = lambda money: chart.base - (chart.base - TOP) * (money / most) ** power
    for money in dict.fromkeys((0.0, *levels, most)):
        chart.level(height(money), f"{money:g}")
    for time, purse in enumerate(purses):
        colour = COLOURS["goal"] if purse.money >= most else COLOURS["blue"]
        chart.bar(time, height(purse.money), chart.base, INK if time == len(purses) - 1 else colour)
        chart.text(time, height(purse.money) - 12, f"{purse.money:.4g}")
    chart.rewards(16, episode.rewards)
    return finished(chart.canvas, episode, env.rounds)


@picture.register(RiverSwim)
def draw_river_swim(env: RiverSwim, episode: Episode) -> Image:
    """Draw the place after every step as a line, with the large reward at the top and the small one at the bottom."""
    swimmers = visited(env, episode)
    chart = _Chart(env.steps, 320)
    top, gap = 28.0, (chart.base - 48.0) / (env.places - 1)

    at = lambda time, place: (chart.x(time), top + (env.places - 1 - place) * gap)
    for place in range(env.places):
        reward = env.small if place == 0 else env.large if place == env.places - 1 else None
        line = "#dde4ec" if reward is None else COLOURS["goal" if place else "yellow"]
        chart.level(at(0, place)[1], f"{place}" if reward is None else signed(reward), line)
    way = [at(time, swimmer.place) for time, swimmer in enumerate(swimmers)]
    dot = min(8.0, chart.pitch / 4)
    chart.canvas.line(way, max(1.5, dot / 2), INK)
    for point, reward in zip(way[:-1], episode.rewards, strict=True):
        chart.canvas.disc(point, dot, COLOURS["goal"] if reward else COLOURS["blue"])
    mark(chart.canvas, way[-1], dot + 2, dot / 2)
    return finished(chart.canvas, episode, env.steps)


@picture.register(Inventory)
def draw_inventory(env: Inventory, episode: Episode) -> Image:
    """Draw the stock before every order as a bar with the order on top of it, and the rewards between the bars."""
    stocks = visited(env, episode)
    chart = _Chart(env.steps, 320)
    height = lambda units: chart.base - (chart.base - TOP) * units / env.capacity
    for units in dict.fromkeys((0, env.capacity // 2, env.capacity)):
        chart.level(height(units), f"{units}")
    for time, stock in enumerate(stocks):
        order = int(episode.actions[time]) if time < len(episode.actions) else 0
        chart.bar(time, height(stock.units + order), height(stock.units), COLOURS["yellow"])
        chart.bar(time, height(stock.units), chart.base, INK if time == len(stocks) - 1 else COLOURS["blue"])
        if order:
            chart.text(time, height(stock.units + order / 2), f"+{order}")
        if stock.units:
            chart.text(time, height(stock.units / 2), f"{stock.units}", WHITE if time == len(stocks) - 1 else INK)
    chart.rewards(16, episode.rewards)
    return finished(chart.canvas, episode, env.steps)


@picture.register(Liquidation)
def draw_liquidation(env: Liquidation, episode: Episode) -> Image:
    """Draw the moves of the price in the tree of possible ones, the lots left below them, and what each sale earned."""
    positions = visited(env, episode)
    chart = _Chart(env.steps, 400)
    middle, upper = 142.0, 96.0
    floor, room = chart.base, 116.0

    at = lambda time, level: (chart.x(time), middle - upper * level / env.steps)
    dot = min(4.0, chart.pitch / 8)
    nodes = [(time, level) for time in range(env.steps + 1) for level in range(-time, time + 1, 2)]
    for time, level in nodes:
        for move in (-1, 1) if time < env.steps else ():
            chart.canvas.line([at(time, level), at(time + 1, level + move)], 1.5, "#dde4ec")
    for node in nodes:
        chart.canvas.disc(at(*node), dot, "#b9c4d0")
    path = [at(position.step, position.level) for position in positions]
    chart.canvas.text((LEFT - 8, middle), "price", 12, MUTED, "right")
    chart.canvas.text((LEFT - 8, floor - room / 2), "lots left", 12, MUTED, "right")
    chart.canvas.line(path, min(4.0, 1 + dot), INK)
    mark(chart.canvas, path[-1], dot + 4, dot + 0.5)
    chart.level(floor, "")
    for time, position in enumerate(positions):
        now = time == len(positions) - 1
        top = floor - room * position.left / env.lots
        sold = int(episode.actions[time]) if not now else 0
        chart.bar(time, top, floor, INK if now else COLOURS["blue"])
        chart.bar(time, top, top + room * sold / env.lots, COLOURS["yellow"])
        if sold:
            chart.text(time, top + room * sold / env.lots / 2, f"−{sold}")
        chart.text(time, top - 11, f"{position.left}", INK if now else MUTED)
    chart.rewards(16, episode.rewards)
    return finished(chart.canvas, episode, env.steps)


@picture.register(Servers)
def draw_servers(env: Servers, episode: Episode) -> Image:
    """Draw the number of servers as a line, those that work as another one, and the queue as bars below."""
    chart = _Chart(max(env.minutes, len(episode.rewards)), 320)
    top, floor, room = 24.0, 150.0, 120.0
    queues = [int(state.queue) for state in episode.states]
    most = max(30, *queues)
    for servers in (LEAST, MOST):
        chart.level(floor - (floor - top) * servers / MOST, f"{servers}")
    chart.canvas.text((LEFT - 8, (top + floor) / 2), "servers", 12, MUTED, "right")
    chart.canvas.text((LEFT - 8, chart.base - room / 2), "queue", 12, MUTED, "right")
    chart.level(chart.base - room, f"{most}")
    chart.level(chart.base, "0")
    for time, queue in enumerate(queues):
        chart.bar(time, chart.base - room * queue / most, chart.base, COLOURS["orange"])
    ready = [int(np.sum(np.asarray(s.loading)[: int(s.servers)] <= 0)) for s in episode.states]
    for counts, colour in ((ready, COLOURS["blue"]), ([int(state.servers) for state in episode.states], INK)):
        way = [(chart.x(time), floor - (floor - top) * count / MOST) for time, count in enumerate(counts)]
        chart.canvas.line(way, 3, colour)
    mark(chart.canvas, way[-1], 6, 3)
    return finished(chart.canvas, episode, env.minutes, decimals=2)


@picture.register(MarketProblem)
def draw_market(env: MarketProblem, episode: Episode) -> Image:
    """Draw the path of the price with the rewards received, and the position as bars below it."""
    left, right, top, bottom = 64, 492, 48, 248
    canvas = paper(512, 322)
    low, high = env.view
    inside = lambda price: min(max((price - low) / (high - low), 0.0), 1.0)
    at = lambda step, price: (left + (right - left) * step / env.steps, bottom - (bottom - top) * inside(price))
    canvas.box((left - 8, top - 10), (right - left + 16, bottom - top + 20), 8, COLOURS["free"])
    for share in (0.0, 0.5, 1.0):
        price = low + share * (high - low)
        canvas.text((left - 16, at(0, price)[1]), f"{price:.3g}", 13, MUTED, "right")
    fields = {"theta": "mean price", "strike": "strike"}
    reference, name = next((float(getattr(env, field)), text) for field, text in fields.items() if hasattr(env, field))
    canvas.line([at(0, reference), at(env.steps, reference)], 1.5, COLOURS["orange"])
    canvas.text((right, at(0, reference)[1] - 11), name, 13, MUTED, "right")
    path = [at(float(seen[-1]), float(seen[0])) for seen in episode.observations]
    canvas.line(path, 3, "#2f6da8")
    for place in path:
        canvas.disc(place, 4, "#2f6da8")
    mark(canvas, path[-1], 8, 4)
    held, middle = [float(seen[1]) for seen in episode.observations if len(seen) > 2], 292
    if held:
        canvas.text((48, middle), "held", 13, MUTED, "right")
    scale = 26 / max([1.0, *map(abs, held)])
    for seen, amount in zip(episode.observations, held, strict=False):
        size = abs(amount) * scale
        corner = (at(float(seen[-1]), 1.0)[0] - 5, middle - size if amount > 0 else middle)
        canvas.box(corner, (10, max(size, 1.0)), 1, COLOURS["blue"] if amount >= 0 else COLOURS["orange"])
    if episode.rewards:
        canvas.text((right, 20), f"last reward {signed(episode.rewards[-1], 4)}", 13, MUTED, "right")
    return finished(canvas, episode, env.steps, decimals=4)
