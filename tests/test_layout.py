"""The order of the package: imports run downward through the wings, and none runs in a circle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "riskpath"
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}


def order() -> list[str]:
    """Return the wings from the bottom up, as CONTRIBUTING states them."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    stated = re.search(r"^Imports run downward: (.+?)\.$", text, re.MULTILINE | re.DOTALL)
    assert stated, "CONTRIBUTING.md must state the order of the wings"
    return re.findall(r"`(\w+)/?`", stated[1])


def wing(module: str) -> str:
    """Return the wing of a module; files directly in the package are the ground floor, its face and start the roof."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "riskpath"
    return parts[1] if (SOURCE / parts[1]).is_dir() else "ground"


def imports(module: str) -> Iterator[str]:
    """Yield the modules of this package that a module imports, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "riskpath")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "riskpath":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def test_imports_run_downward_through_the_wings():
    floors = {name: floor for floor, name in enumerate(order())}
    assert set(floors) == {wing(module) for module in MODULES}, "CONTRIBUTING.md must name every wing"
    upward = [
        f"{module} imports {other}"
        for module in MODULES
        for other in imports(module)
        if floors[wing(other)] > floors[wing(module)]
    ]
    assert upward == []


def test_no_imports_run_in_a_circle():
    graph = {module: {other for other in imports(module) if other != module} for module in MODULES}
    # A package's `__init__` gathers its own modules; those import one another directly.
    graph = {module: {o for o in others if not module.startswith(f"{o}.")} for module, others in graph.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_no_two_files_share_a_name():
    names: dict[str, str] = {}
    for module, path in MODULES.items():
        if path.stem != "__init__":
            assert names.setdefault(path.stem, module) == module
    assert len(list(SOURCE.glob("*.py"))) <= 12, "files belong to a wing"


@pytest.mark.parametrize(
    ("file", "most"),
    [
        *(("iqn", 90), ("cvar_drl", 100), ("qrsrm", 160), ("tql", 170)),
        *(("ppo", 170), ("qrdqn", 80), ("c51", 80), ("dsac", 150)),
    ],
)
def test_agents_stay_small(file, most):
    assert len((SOURCE / "agents" / f"{file}.py").read_text().splitlines()) <= most


def test_tests_mirror_the_source():
    wings = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert wings <= folders
