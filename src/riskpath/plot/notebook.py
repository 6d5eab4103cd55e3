"""Results as text: HTML for a notebook, with text escaped and nothing loaded, and tables in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def html_table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of rows with the same keys."""
    columns = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[column])}</td>' for column in columns)}</tr>" for row in rows)
    return f"<p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(title: str, lines: Sequence[str]) -> str:
    """Return lines of text below a heading."""
    return f"<p><b>{escape(title)}</b></p><pre>{escape(chr(10).join(lines))}</pre>"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int | None = None) -> str:
    """Return a table in Markdown: the first `texts` columns hold text, the others numbers; by default all hold text."""
    left = len(headings) if texts is None else texts
    marks = ["---"] * left + ["---:"] * (len(headings) - left)
    lines = [f"| {' | '.join(line)} |" for line in (headings, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(str(value))
