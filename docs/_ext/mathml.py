"""Render maths as MathML, which browsers draw themselves: no script and no font is loaded."""

from typing import Any, Literal

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def to_mathml(node: nodes.Element, display: Literal["inline", "block"]) -> str:
    """Return a formula as MathML; warn about commands that are not known."""
    written = convert(node.astext(), display=display)
    if "\\" in written:
        logger.warning("unknown TeX command in %r", node.astext(), location=node)
    return written


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    writer.body.append(to_mathml(node, "inline"))
    raise nodes.SkipNode


def visit_display(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, which scrolls where the screen is narrow."""
    writer.body.append(f'<div class="math-block">{to_mathml(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
