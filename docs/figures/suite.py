"""Draw the return distributions of every problem and insert the tables of optima into the pages of the problems.

Run `python docs/figures/suite.py` after `riskpath reproduce suite-optima`.
"""

import json
import re
from pathlib import Path
from typing import Any

from riskpath.experiments.suite_figures import draw_record, markdown
from riskpath.plot import panels, save

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "results" / "suite_optima.json"
PARTS = ("<!-- optima -->", "<!-- end of optima -->")
"""The comments between which a page has its table."""


def main() -> None:
    """Write one picture and one table for each problem that has a page."""
    for record in json.loads(RESULT.read_text())["records"]:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", record["problem"]).lower()
        page = HERE.parent / "problems" / f"{words}.md"
        if page.exists() and PARTS[0] in page.read_text():
            figure, axes = panels(1, 1, 5.6, 3.4)
            draw_record(axes[0, 0], record)
            axes[0, 0].legend(frameon=False, fontsize=8)
            name = f"{words.replace('-', '_')}_laws.png"
            save(figure, HERE / name)
            insert(page, record, f"../figures/{name}")


def insert(page: Path, record: dict[str, Any], picture: str) -> None:
    """Replace the table of optima of a page."""
    text = page.read_text()
    begin, end = PARTS
    body = f"{begin}\n\n{markdown(record)}\n\n```{{image}} {picture}\n:alt: Return distributions of four policies\n"
    body += ":width: 480px\n:align: center\n```\n\n" + end
    pattern = re.escape(begin) + (f".*?{re.escape(end)}" if end in text else "")
    page.write_text(re.sub(pattern, lambda _: body, text, count=1, flags=re.S))


if __name__ == "__main__":
    main()
