"""Read docstrings as Markdown, the same language as the pages, and shorten the types in signatures."""

import re
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx import addnodes
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


def as_markdown(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Wrap a docstring into the directive."""
    del app, what, name, obj, options
    if any(line.strip() for line in lines):
        lines[:] = [".. markdown::", "", *(f"   {line}" for line in list_arguments(lines)), ""]


def list_arguments(lines: list[str]) -> list[str]:
    """Turn the lines below "Args:" into a list."""
    if "Args:" not in lines:
        return lines
    start = lines.index("Args:") + 1
    end = next(
        (at for at in range(start, len(lines)) if lines[at] and not lines[at].startswith(" ")),
        len(lines),
    )
    listed = [re.sub(r"^    (\w+): ", r"- `\1`: ", line) for line in lines[start:end]]
    listed = [line if line.startswith("-") else line.removeprefix("      ") for line in listed]
    return [*lines[: start - 1], "", *listed, "", *lines[end:]]


SHORTER = {
    "jaxlib._jax.Array": "Array",
    "Key[Array, ''] | UInt32[Array, '2'] | UInt32[Array, '4']": "Key",
    "collections.abc.": "",
    "riskpath.risk.measures.": "",
}
"""Long types as evaluated → as written in the source."""


def shorten(text: str) -> str:
    """Return a signature with the types as written in the source."""
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def shorten_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Shorten the types of a function."""
    del app, what, name, obj, options
    return signature and shorten(signature), returns and shorten(returns)


def shorten_attributes(app: Sphinx, document: nodes.document) -> None:
    """Shorten the types of attributes."""
    del app
    for signature in document.findall(addnodes.desc_annotation):
        if (text := signature.astext()) != shorten(text):
            signature.children = [nodes.Text(shorten(text))]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and use it for every docstring."""
    app.add_directive("markdown", Markdown)
    app.connect("autodoc-process-docstring", as_markdown)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("doctree-read", shorten_attributes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
