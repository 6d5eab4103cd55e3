"""Render maths as MathML, which browsers draw themselves: no script and no font is loaded."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    writer.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_display(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, which scrolls where the screen is narrow."""
    writer.body.append(f'<div class="math-block">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
