"""Every Python block of README and documentation and every example runs; links and commands are valid."""

import importlib
import pkgutil
import re
import runpy
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import riskpath
from riskpath.cli.main import main
from riskpath.cli.parser import parse
from riskpath.risk import compose

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
REPEATED = [
    "docs/agents/adaptive-continuous.md",  # adaptive.md calls the same, tests/agents/test_adaptive.py trains this agent
    "docs/agents/adaptive-ppo.md",  # tests/agents/test_adaptive_ppo.py trains this agent
    "docs/agents/adaptive.md",  # README.md trains this agent, tests/training/test_selection.py calls the same
    "docs/concepts/exact-solvers.md",  # tests/mdp call every solver
    "docs/problems/american-put.md",  # tests/envs/test_market.py solves the same problem
    "docs/tutorials/hedging.md",  # tests/mdp solve for every measure, tests/mdp/exact with floors
    "docs/tutorials/gymnasium.md",  # guides/gymnasium.md and guides/evaluation.md call the same
    "docs/tutorials/learn.md",  # README.md trains this agent, tests/training (selection, checkpoint) call the same
    "examples/own_agent.py",  # docs/guides/own-agent.md trains an agent, and has this one
    "examples/serve_policy.py",  # guides/production.md exports as well, and tests/evaluation
    "examples/tune_with_optuna.py",  # docs/guides/sweeps.md calls the same
    "examples/own_environment.py",  # tests/training/test_host_loop.py trains on environments of its own
]
"""Pages and examples that `make test` leaves out."""
UNTRAINED = [
    "README.md",  # tests/agents/test_adaptive.py trains the same agent, and checks what it has learned
    *(f"docs/guides/{name}.md" for name in ("data", "evaluation", "gymnasium", "own-environment")),
    *(f"docs/guides/{name}.md" for name in ("own-measure", "serving", "sweeps", "training")),
    "docs/tutorials/hedging.md",
    *(f"docs/agents/{name}.md" for name in ("c51", "cvar-drl", "dsac", "iqn", "qrdqn", "qrsrm", "tql")),
    *(f"docs/agents/{name}.md" for name in ("cvar-policy-gradient", "ppo", "return-capping", "wcpg")),
    "examples/learn_and_compare.py",
    "examples/save_and_resume.py",
]
"""Those that `make test` runs with stand-ins for the steps of training: the tests of their agents, of environments
outside of the program and of saved runs train the same.

Other guides and tutorials are trained as they are written.
"""


def programs(paths: Iterable[Path]) -> list[Any]:
    """Return the parameters of a test that runs files: a path, and whether it trains."""
    names = {str(path.relative_to(ROOT)): path for path in paths}
    left_out = lambda name, trains: [pytest.mark.long] if name in (*REPEATED, *(UNTRAINED if trains else ())) else []
    whole = [pytest.param(path, True, id=name, marks=left_out(name, True)) for name, path in names.items()]
    return whole + [
        pytest.param(names[name], False, id=f"{name} untrained", marks=left_out(name, False))
        for name in UNTRAINED
        if name in names
    ]


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the names of the headings and targets of a page, as links use them."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    targets = set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))
    return targets | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "trained"), programs(page for page in PAGES if blocks(page, "python")))
def test_code_blocks_run(page, trained, unchecked, monkeypatch, request):
    if not trained:
        request.getfixturevalue("untrained")
    monkeypatch.setattr(compose, "BY_NAME", dict(compose.BY_NAME))  # a page may register a measure
    program = "\n".join(blocks(page, "python"))
    exec(compile(program, str(page), "exec"), {"__name__": page.stem})


@pytest.mark.parametrize(("path", "trained"), programs(sorted((ROOT / "examples").glob("*.py"))))
def test_examples_run_and_print_their_results(path, trained, unchecked, capsys, request):
    # Here, because some of them train what a page trains: a program that was compiled for a page serves them, too.
    if not trained:
        request.getfixturevalue("untrained")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@every_page
def test_blocks_that_do_not_run_are_valid_python(page):
    for block in blocks(page, "py"):
        compile(block, str(page), "exec")


@every_page
def test_links_have_targets(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), f"{target}#{anchor}"


@every_page
def test_commands_and_configurations_are_parsed(page, tmp_path, unchecked):
    (tmp_path / "0.json").write_text("{}")  # for commands of a page without a configuration
    for number, content in enumerate(blocks(page, "json")):
        config = tmp_path / f"{number}.json"
        config.write_text(content)
        assert callable(parse(["train", "--config", str(config)]))
    for block in blocks(page, "sh"):
        for command in (shlex.split(line, comments=True) for line in block.splitlines()):
            if command[:1] == ["riskpath"] and "--help" not in command:
                words = [str(tmp_path / "0.json") if word.endswith("config.json") else word for word in command[1:]]
                assert callable(parse(words))  # parsed, not called: some commands take minutes


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys, unchecked, untrained):
    # Without the steps of training: tests/cli/test_run_commands.py trains.
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(blocks(ROOT / "README.md", "sh")).splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("riskpath ")]
    assert [words[0] for words in commands] == ["solve", "frontier", "train", "report"]
    for words in commands:
        main(words)
        assert capsys.readouterr().out, words
    assert list(tmp_path.rglob("*.html"))


def test_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in PAGES:
        for name in re.findall(r"^make ([\w-]+)", "\n".join(blocks(page, "sh")), flags=re.MULTILINE):
            assert name in targets, f"{page}: make {name}"


def test_readme_has_at_most_600_words():
    assert len((ROOT / "README.md").read_text().split()) <= 600


def test_the_agent_of_the_documentation_has_at_most_40_lines():
    page = (DOCS / "guides" / "own-agent.md").read_text()
    agent = re.search(r"^class Shortfall.*?(?=^```)", page, flags=re.DOTALL | re.MULTILINE)
    assert agent is not None
    assert len(agent[0].strip().splitlines()) <= 40


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in DOCS.rglob("*.md"):
        for toctree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            entries = [line for line in toctree.split() if not line.startswith(":")]
            listed |= {page.parent / f"{entry}.md" for entry in entries}
    assert listed == set(DOCS.rglob("*.md"))


def test_the_api_reference_covers_every_module():
    pages = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    packages, modules = (set(re.findall(rf"{word} ([\w.]+)", pages)) for word in (r"\{package\}", "automodule::"))
    without = {"__main__", "cli", "experiments", "version"}  # `riskpath --help` documents the first two
    for module in pkgutil.iter_modules(riskpath.__path__):
        assert module.name in without | packages or f"riskpath.{module.name}" in modules, module.name
    for name in modules | {f"riskpath.{package}" for package in packages}:
        importlib.import_module(name)


def test_the_citation_names_the_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {riskpath.__version__}\n" in citation
    assert f"version = {{{riskpath.__version__}}}" in (DOCS / "citing.md").read_text()


def test_every_example_is_listed():
    listed = set(re.findall(r"^\| `(\w+\.py)`", (DOCS / "getting-started.md").read_text(), flags=re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "examples").glob("*.py")}
