"""Read docstrings as Markdown, the same language as the pages."""

from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Markdown(SphinxDirective):
    """Parse the content of the directive with MyST and put the result in its place."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the content."""
        source, _ = self.get_source_info()
        document = new_document(source, self.state.document.settings)
        document.reporter = self.state.document.reporter
        MystParser().parse("\n".join(self.content), document)
        for block in document.findall(nodes.literal_block):
            block["language"] = block.get("language") or "text"
        return document.children


def as_markdown(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Wrap a docstring into the directive."""
    del app, what, name, obj, options
    if any(line.strip() for line in lines):
        lines[:] = [".. markdown::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and use it for every docstring."""
    app.add_directive("markdown", Markdown)
    app.connect("autodoc-process-docstring", as_markdown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
