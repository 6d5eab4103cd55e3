"""Directives of the API reference.

`public-names PACKAGE` writes a table of what `import riskpath as rp` offers from a package, with links.
`package PACKAGE` documents every module of a package, so that a new module appears without a change here.
"""

import importlib
import inspect
import pkgutil
import sys
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import riskpath


def first_sentence(name: str, thing: Any, module: str) -> str:
    """Return the first sentence of a docstring; that of a plain value stands below it in its module."""
    if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
        text = inspect.getdoc(thing) or ""
    else:
        text = "\n".join(ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name), []))
    text = " ".join(text.split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".:") + "."


def public_names() -> list[tuple[str, Any, str]]:
    """Return name, object and defining module of everything that `riskpath` offers."""
    found = []
    for name in sorted(vars(riskpath), key=str.lower):
        thing = getattr(riskpath, name)
        if name.startswith("_") or (inspect.ismodule(thing) and thing.__name__.count(".") < 2):
            continue
        if inspect.ismodule(thing):
            module = thing.__name__
        elif inspect.isclass(thing) or inspect.isroutine(thing):
            module = thing.__module__
        else:
            module = home(name, type(thing).__module__)
        found.append((name, thing, module))
    return found


def home(name: str, guess: str) -> str:
    """Return the module that defines a plain value: the one of its package that has the name."""
    for module_name, module in sorted(sys.modules.items()):
        if (
            module_name.count(".") == 2
            and module_name.startswith("riskpath.")
            and name in vars(module)
        ):
            source = inspect.getsource(module)
            if f"\n{name} = " in source:
                return module_name
    return guess


class PublicNames(SphinxDirective):
    """Write the table for the names of one package: `public-names` with the package as argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        package = self.arguments[0]
        rows = [row for row in public_names() if row[2].split(".")[1:2] == [package]]
        return [self.table(rows)] if rows else []

    def table(self, rows: list[tuple[str, Any, str]]) -> nodes.Node:
        """Return a table of names and first sentences."""
        table, group, body = (
            nodes.table(classes=["public-names"]),
            nodes.tgroup(cols=2),
            nodes.tbody(),
        )
        group += [nodes.colspec(colwidth=1), nodes.colspec(colwidth=3)]
        for name, thing, module in rows:
            target = module if inspect.ismodule(thing) else f"{module}.{name}"
            link = addnodes.pending_xref(
                "",
                nodes.literal("", f"rp.{name}"),
                refdomain="py",
                reftype="mod" if inspect.ismodule(thing) else "obj",
                reftarget=target,
                refexplicit=True,
                refwarn=True,
            )
            sentence = nodes.paragraph()
            for index, part in enumerate(first_sentence(name, thing, module).split("`")):
                sentence += nodes.literal("", part) if index % 2 else nodes.Text(part)
            row = nodes.row()
            row += [nodes.entry("", nodes.paragraph("", "", link)), nodes.entry("", sentence)]
            body += row
        group += body
        table += group
        return table


class Package(SphinxDirective):
    """Document every module of a package from its docstrings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return one section for each module."""
        package = importlib.import_module(f"riskpath.{self.arguments[0]}")
        own = [
            name
            for name, thing in vars(package).items()
            if getattr(thing, "__module__", "") == package.__name__
        ]
        functions = [
            f".. autofunction:: {package.__name__}.{name}"
            for name in own
            if not name.startswith("_")
        ]
        text = "```{eval-rst}\n" + "\n\n".join(functions) + "\n```\n\n" if functions else ""
        start = f"{package.__name__}."
        for name in sorted(m.name for m in pkgutil.walk_packages(package.__path__, start)):
            title = name.removeprefix(start)
            text += (
                f"## {title}\n\n`{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n\n"
            )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("package", Package)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
