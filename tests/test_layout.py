"""The order of the code: imports run downward through the packages, and none runs in a circle, nor in benchmarks."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import riskpath

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "riskpath"
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
BENCHMARKS = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("*/*.py"))}
"""Benchmarks are programs: those of one folder import one another by the name of the file."""


def order() -> list[str]:
    """Return the packages from the bottom up, as CONTRIBUTING states them."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    stated = re.search(r"^Imports run downward: (.+?)\.$", text, re.MULTILINE | re.DOTALL)
    assert stated, "CONTRIBUTING.md must state the order of the packages"
    return re.findall(r"`(\w+)/?`", stated[1])


def package(module: str) -> str:
    """Return the package of a module; files directly in riskpath are "ground", its `__init__` and start "riskpath"."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "riskpath"
    return parts[1] if (SOURCE / parts[1]).is_dir() else "ground"


def imports(module: str, modules: dict[str, Path] = MODULES) -> Iterator[str]:
    """Yield those of `modules` that a module imports, also inside functions, under TYPE_CHECKING and by name."""
    for node in ast.walk(ast.parse(modules[module].read_text())):
        if isinstance(node, ast.Call):  # import_module("riskpath.…"), require_extra("riskpath.…", …), __import__(…)
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            by_name = modules is MODULES or called in ("import_module", "__import__")  # "memory" is also a plain word
            yield from (text for text in texts if by_name and text in modules and text != "riskpath")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def test_public_methods_have_a_docstring_or_inherit_one():
    members = [
        (f"{cls.__name__}.{name}", getattr(cls, name))
        for cls in vars(riskpath).values()
        if inspect.isclass(cls)
        for name in vars(cls)
        if not name.startswith("_")
    ]
    methods = [(name, member) for name, member in members if inspect.isroutine(member) or isinstance(member, property)]
    assert [name for name, member in methods if not inspect.getdoc(member)] == []
    assert len(methods) > 300


def test_imports_run_downward_through_the_packages():
    floors = {name: floor for floor, name in enumerate(order())}
    assert set(floors) == {package(module) for module in MODULES}, "CONTRIBUTING.md must name every package"
    upward = [
        f"{module} imports {other}"
        for module in MODULES
        for other in imports(module)
        if floors[package(other)] > floors[package(module)]
    ]
    assert upward == []


def test_imports_run_downward_within_mdp():
    floors = {"model": 0, "exact": 1, "grid": 2, "solve": 3}

    def floor(module: str) -> int:
        part = module.split(".")[2]
        return floors.get(part, 0)

    inside = [module for module in MODULES if module.startswith("riskpath.mdp.")]
    upward = [
        f"{module} imports {other}"
        for module in inside
        for other in imports(module)
        if other.startswith("riskpath.mdp.") and floor(other) > floor(module)
    ]
    assert upward == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import riskpath.risk.compose", ["riskpath.risk.compose"]),
        ("from riskpath.risk import compose", ["riskpath.risk.compose"]),
        ("def f():\n    from riskpath.errors import RiskpathError", ["riskpath.errors"]),
        ('importlib.import_module("riskpath.risk.compose").parse_risk', ["riskpath.risk.compose"]),
        ('__import__("riskpath.errors")', ["riskpath.errors"]),
        ('print("riskpath.nothing")', []),
    ],
)
def test_imports_are_seen(text, found, tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text(text)
    monkeypatch.setitem(MODULES, "riskpath.one", tmp_path / "one.py")
    assert list(imports("riskpath.one")) == found


def test_no_imports_run_in_a_circle():
    graph = {module: {other for other in imports(module) if other != module} for module in MODULES}
    # A package's `__init__` gathers its own modules; those import one another directly.
    graph = {module: {o for o in others if not module.startswith(f"{o}.")} for module, others in graph.items()}
    assert_no_circle(graph)


def test_benchmarks_import_only_their_own_folder_and_in_no_circle():
    graph = {name: set(imports(name, BENCHMARKS)) for name in BENCHMARKS}
    assert_no_circle(graph)
    across = [f"{a} imports {b}" for a, to in graph.items() for b in to if BENCHMARKS[a].parent != BENCHMARKS[b].parent]
    assert across == []
    assert not list((ROOT / "benchmarks").glob("*.py")), "benchmarks lie in folders by what they measure"


def test_circles_are_seen():
    assert_no_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    with pytest.raises(AssertionError, match="b → c → b"):
        assert_no_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})


def assert_no_circle(graph: dict[str, set[str]]) -> None:
    """Fail with the modules of the first circle that is found."""
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
            name = ".".join(module.split(".")[2:]) or path.stem  # grid.problem is not problem
            assert names.setdefault(name, module) == module
    assert len(list(SOURCE.glob("*.py"))) <= 12, "files belong to a package"


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
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages <= folders
    parts = {path.name for path in (SOURCE / "mdp").iterdir() if (path / "__init__.py").exists()}
    assert parts == {path.name for path in (ROOT / "tests" / "mdp").iterdir() if (path / "__init__.py").exists()}
