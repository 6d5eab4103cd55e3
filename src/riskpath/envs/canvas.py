"""A canvas for pictures of environments: a matplotlib figure without axes, drawn into an array of bytes.

This module imports matplotlib, which is optional and slow to import; `rendering` imports it for the first picture.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from riskpath.extras import needs_extra

with needs_extra("plot", "a picture of an environment"):
    from matplotlib.artist import Artist
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, FancyBboxPatch, Polygon
    from matplotlib.text import Text
    from matplotlib.transforms import Affine2D, Transform

Point = tuple[float, float]
DPI = 64
"""Dots per inch: a power of two, so that a size in pixels is not rounded when it is converted to inches and back."""
POINTS = 72 / DPI
"""Points per pixel; matplotlib measures lines and letters in points."""


class Canvas:
    """White paper to draw on. Places are (x, y) in pixels from the upper left corner, unless a transform is given."""

    def __init__(self, width: int, height: int, background: UInt8[np.ndarray, "H W 3"] | None = None):
        self.width, self.height = width, height
        self.pixels = Affine2D().scale(1, -1).translate(0, height)
        self._figure = Figure((width / DPI, height / DPI), DPI)
        self._renderer = FigureCanvasAgg(self._figure).get_renderer()
        self._image = np.asarray(self._renderer.buffer_rgba())
        self._image[:] = 255
        if background is not None:
            self._image[..., :3] = background

    @staticmethod
    def affine() -> Affine2D:
        """Return the identity, to be scaled, rotated and translated."""
        return Affine2D()

    def image(self) -> UInt8[np.ndarray, "H W 3"]:
        """Return the picture as bytes."""
        return self._image[..., :3].copy()

    def box(self, corner: Point, size: Point, radius: float, colour: str, transform: Transform | None = None) -> None:
        """Fill a rectangle with rounded corners."""
        style = f"round,pad=0,rounding_size={radius}"
        self._draw(FancyBboxPatch(corner, *size, boxstyle=style, facecolor=colour, linewidth=0), transform)

    def disc(self, centre: Point, radius: float, colour: str, transform: Transform | None = None) -> None:
        """Fill a circle."""
        self._draw(Circle(centre, radius, facecolor=colour, linewidth=0), transform)

    def polygon(self, points: Any, colour: str, transform: Transform | None = None) -> None:
        """Fill a polygon."""
        self._draw(Polygon(points, facecolor=colour, linewidth=0), transform)

    def line(self, points: Sequence[Point], width: float, colour: str, transform: Transform | None = None) -> None:
        """Draw a line through points with round ends; its width is in pixels."""
        x, y = zip(*points, strict=True)
        style: dict[str, Any] = {"solid_capstyle": "round", "solid_joinstyle": "round"}
        self._draw(Line2D(x, y, linewidth=width * POINTS, color=colour, **style), transform)

    def text(
        self, place: Point, text: str, size: float, colour: str, align: str = "center", weight: str = "normal"
    ) -> None:
        """Write text of `size` pixels; the place is its centre, or its end if `align` is "left" or "right"."""
        style: dict[str, Any] = {"ha": align, "va": "center_baseline", "weight": weight}
        self._draw(Text(*place, text, color=colour, fontsize=size * POINTS, **style))

    def gradient(self, top: str, bottom: str) -> None:
        """Fill the canvas with a colour that changes from top to bottom."""
        share = np.linspace(0, 1, self.height)[:, None, None]
        self._image[..., :3] = 255 * ((1 - share) * np.array(to_rgb(top)) + share * np.array(to_rgb(bottom)))

    def _draw(self, artist: Artist, transform: Transform | None = None) -> None:
        """Draw one shape over the others. This is faster than `Figure.draw`, which also copies the background."""
        artist.set_figure(self._figure)
        artist.set_transform(transform or self.pixels)
        artist.draw(self._renderer)
