"""Refuse a site that loads scripts, styles, fonts or pictures from other servers."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SERVER = r"((?:https?:)?//[^\"')]+)"
LOADED = {
    ".html": rf'<(?:script|img|iframe|source)\b[^>]*\ssrc="{SERVER}|<link\b[^>]*\shref="{SERVER}',
    ".css": rf"(?:@import\s+|url\()\s*[\"']?{SERVER}",
}
"""What a browser loads by itself; links that a reader may follow are allowed."""


def check(app: Sphinx, exception: Exception | None) -> None:
    """Search the pages and style sheets that were written."""
    if exception is not None or app.builder.format != "html":
        return
    for file in sorted(Path(app.outdir).rglob("*")):
        if pattern := LOADED.get(file.suffix):
            for groups in re.findall(pattern, file.read_text(errors="replace")):
                address = "".join(groups)
                raise ExtensionError(
                    f"{file.relative_to(app.outdir)} loads {address} from another server"
                )


def setup(app: Sphinx) -> dict[str, Any]:
    """Check the site when it is complete."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
