"""Every Python block of the README and the docs runs, in order, as one program per page; links lead somewhere."""

import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from riskpath.cli.main import _read
from riskpath.risk import compose as risk_compose

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def wandb(monkeypatch) -> list[tuple[int, dict[str, float]]]:
    """Stands in for Weights & Biases: what was logged, by step."""
    logged = []
    stand_in = SimpleNamespace(init=lambda project: None, log=lambda numbers, step: logged.append((step, numbers)))
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return logged


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page, unchecked, wandb, monkeypatch):
    monkeypatch.setattr(risk_compose, "BY_NAME", dict(risk_compose.BY_NAME))  # a page may register a measure
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": page.stem})
    if page.name == "training.md":
        assert [step for step, _ in wandb] == sorted({step for step, _ in wandb})
        assert {"loss/0", "estimate/5", "values/5", "step/0"} <= set().union(*(numbers for _, numbers in wandb))
        assert all(isinstance(one, int | float) for _, numbers in wandb for one in numbers.values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_line_knows_the_commands_shown(page, tmp_path, unchecked):
    text = page.read_text()
    files = re.findall(r"^```json\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE) or ["{}"]
    for number, content in enumerate(files):
        config = tmp_path / f"{number}.json"
        config.write_text(content)
        assert callable(_read(["train", "--config", str(config)]))
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        for command in (shlex.split(line, comments=True) for line in block.splitlines()):
            if command[:1] == ["riskpath"]:
                words = [str(tmp_path / "0.json") if word.endswith("config.json") else word for word in command[1:]]
                assert callable(_read(words))  # read, not called: some of them take minutes


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in PAGES[2:]:
        assert page.name == "README.md" or f"]({page.name})" in index, page
