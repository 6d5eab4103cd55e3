"""A run as a folder for any file host: the run itself, its policy, its report, and a model card that describes them."""

from pathlib import Path

from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import setting_labels
from riskpath.evaluation.policy_file import require_export
from riskpath.files import as_path, disk_errors, write_file
from riskpath.hyperparameters import flat_settings
from riskpath.plot.notebook import markdown_table
from riskpath.report.gather_record import facts, write_report
from riskpath.report.page import require_page
from riskpath.risk.measures import CVaR
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.measured import Measured
from riskpath.training.run import Run

CARD, CHECKPOINT, POLICY, REPORT = "README.md", "run", "policy.zip", "report.html"
MARKER = "library_name: riskpath"
"""The line by which a card is known. File hosts read it as well."""
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
USE = """```python
import riskpath as rp

run = rp.load(".")  # this folder
policy = rp.load_policy("policy.zip")
```"""
EPISODES = 2_000
"""Sampled episodes of each seed where the return distributions are not exact."""


def push_run(run: Run, folder: str | Path, title: str | None = None) -> Path:
    """Write a run with its policy, report and model card to a folder and return its path.

    Only what was pushed there before is replaced; other files stay, so the folder may be a clone of a repository.
    """
    place = as_path(folder)
    card = place / CARD
    with disk_errors(f"cannot write {card}"):
        if card.exists() and MARKER not in card.read_text(errors="replace"):
            raise RiskpathError(f"{card} exists and is not a model card of riskpath: give another folder")
    require_page(place / REPORT)  # before the work
    require_export(place / POLICY)
    name = title or f"{type(run.agents[0]).__name__} on {run.environment_name}"
    files = {CHECKPOINT: f"everything: `rp.load` reads it, and `rp.train` continues at step {run.steps:,}"}
    played = not isinstance(run.environments[0], LoggedEnvironment)
    found = run.measure(None if run.sources else EPISODES, seed=1) if played else None
    run.save(place / CHECKPOINT)
    run.policy().export(place / POLICY)
    files[POLICY] = (
        "the greedy policy of the first setting and seed, for production: `rp.load_policy`, `riskpath serve`"
    )
    if played:
        write_report(run, place / REPORT, name)
        files[REPORT] = "all figures and tables of the run; it opens in a browser without a server"
    write_file(card, model_card(run, found, files, name))
    return place


def model_card(run: Run, found: Measured | None, files: dict[str, str], title: str) -> str:
    """Return the model card in Markdown; `found` is None if there is no environment to play in.

    The lines at its top are those that file hosts read.
    """
    risks = ", ".join(dict.fromkeys(str(agent.risk) for agent in run.agents))
    about = f"{run.steps:,} steps" + ("" if run.finished or run.plan is None else f" of {run.plan.goal:,}")
    parts = [
        f"---\n{MARKER}\ntags: [reinforcement-learning, risk-averse, cvar]\n---",
        f"# {title}",
        f"Trained for {risks} of the whole return, {about}, {run.seeds} seed{'s' if run.seeds > 1 else ''}.",
        USE,
        "## Returns",
        "No environment was there to play in: the run was trained on data." if found is None else _curve(run, found),
        *[f"**{line}**" for line in run.notices],
        "## What was trained, on what, with what",
        _table(("", ""), list(facts(run).items())),
        "## Hyperparameters",
    ]
    for label, agent in zip(setting_labels([agent.risk for agent in run.agents]), run.agents, strict=True):
        heading = [f"### {label}"] if len(run.agents) > 1 else []
        parts += [*heading, _table(("", type(agent).__name__), list(flat_settings(agent).items()))]
    parts += ["## Files", _table(("file", "what it is"), [(f"`{name}`", what) for name, what in files.items()])]
    parts += ["Nothing in these files is executed when they are loaded."]
    return "\n\n".join(parts) + "\n"


def _curve(run: Run, found: Measured) -> str:
    """Return the CVaR of the return at several levels as a table, with a column for each setting."""
    labels = setting_labels([agent.risk for agent in run.agents])
    exact = "exact" if found.episodes is None else f"from {found.episodes:,} episodes of each seed, with 95 % intervals"
    rows = []
    for level in LEVELS:
        risk = CVaR(level)
        if found.sample is None:
            cells = [_cell(values.mean(), values.min(), values.max()) for values in found.values(risk)]
        else:
            cells = [_cell(one.estimate, one.low, one.high) for one in found.sample.risk(risk)]
        rows.append(("1 (mean)" if level == 1 else f"{level:g}", *cells))
    spread = "; in brackets the lowest and the highest seed" if found.sample is None and run.seeds > 1 else ""
    text = f"CVaR of the undiscounted return of the greedy policies, mean over seeds, {exact}{spread}."
    return f"{text}\n\n{_table(('CVaR level', *labels), rows)}"


def _cell(middle: float, low: float, high: float) -> str:
    return f"{middle:.5g}" + (f" [{low:.5g}, {high:.5g}]" if low < high else "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown, in which a cell may contain the sign between cells."""
    return markdown_table(head, ([cell.replace("|", "\\|") for cell in row] for row in rows))
