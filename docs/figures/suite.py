"""Draw the return distributions of every problem and insert the tables of optima into the pages of the problems.

Run `python docs/figures/suite.py` after `riskpath reproduce suite-optima`.
"""

import json
import re
from pathlib import Path

from riskpath.experiments.suite_figures import draw_record, insert
from riskpath.plot import panels, save

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "results" / "suite_optima.json"


def main() -> None:
    """Write one picture and one table for each problem that has a page."""
    for record in json.loads(RESULT.read_text())["records"]:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", record["problem"]).lower()
        page = HERE.parent / "problems" / f"{words}.md"
        if page.exists() and "<!-- optima -->" in page.read_text():
            figure, axes = panels(1, 1, 5.6, 3.4)
            draw_record(axes[0, 0], record)
            axes[0, 0].legend(frameon=False, fontsize=8)
            name = f"{words.replace('-', '_')}_laws.png"
            save(figure, HERE / name)
            insert(page, record, f"../figures/{name}")


if __name__ == "__main__":
    main()
