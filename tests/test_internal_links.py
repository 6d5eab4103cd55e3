"""The checker of the site's internal links."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCE = Path(__file__).parents[1] / "docs" / "_ext" / "internal_links.py"


def test_links_to_pages_and_headings_that_do_not_exist_are_found(tmp_path, monkeypatch):
    for name in ("sphinx", "sphinx.application", "sphinx.errors"):  # not installed here
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(Sphinx=object, ExtensionError=ValueError))
    spec: Any = importlib.util.spec_from_file_location("internal_links", SOURCE)
    checker: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    good = ["#here", "b/other.html", "b/other.html#there", "https://example.org/#x", "mailto:a@b.c", "a%20b.png"]
    bad = ["#nowhere", "b/none.html", "b/other.html#nowhere", "none.png"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "other.html").write_text('<p id="there"><a href="../index.html">back</a>')
    (tmp_path / "a b.png").touch()
    links = "".join(f'<a href="{link}">x</a>' for link in good + bad)
    (tmp_path / "index.html").write_text(f'<p id="here">{links}')
    assert checker.broken_links(tmp_path) == [f"index.html: {link}" for link in bad]
