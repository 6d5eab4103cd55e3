"""Refuse a site with links to pages, files or headings of its own that do not exist."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


class Page(HTMLParser):
    """The anchors of a page and the links on it."""

    def __init__(self, file: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag names and what it links to."""
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif value and (tag, name) in {
                ("a", "href"),
                ("link", "href"),
                ("img", "src"),
                ("script", "src"),
            }:
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Return the links within a site that lead nowhere, as "page: link"."""
    pages = {file.resolve(): Page(file) for file in sorted(site.rglob("*.html"))}
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            known = pages[target].anchors | {""} if target in pages else {anchor}
            if not target.is_file() or anchor not in known:
                broken.append(f"{file.relative_to(site.resolve())}: {link}")
    return broken


def check(app: Sphinx, exception: Exception | None) -> None:
    """Check the pages that were written."""
    if exception is None and app.builder.format == "html":
        broken = broken_links(Path(app.outdir))
        if broken:
            raise ExtensionError(
                f"{len(broken)} internal links are broken:\n" + "\n".join(broken)
            )


def setup(app: Sphinx) -> dict[str, Any]:
    """Check the site when it is complete."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
