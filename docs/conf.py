"""Sphinx configuration: MyST pages, the furo theme, maths as MathML, nothing loaded from other servers."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import riskpath  # noqa: E402

project = "Riskpath"
author = "The Riskpath developers"
copyright = "2026, The Riskpath developers"
version = release = riskpath.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "internal_links",
    "mathml",
    "offline",
    "public_names",
]
exclude_patterns = ["_ext", "_static", "figures"]
default_role = "py:obj"

# Markdown
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

# API reference
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!riskpath\.).*"),  # types of other projects have no pages here,
    ("py:.*", r".*\.(_\w+|[A-Z])"),  # nor have private names and type variables
]
viewcode_line_numbers = True
viewcode_follow_imported_members = False  # otherwise links back to a page name the wrong module

# Look
html_theme = "furo"
html_title = "Riskpath"
html_static_path = ["_static"]
html_css_files = ["riskpath.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
    "light_css_variables": {"color-brand-primary": "#2c6e49", "color-brand-content": "#2c6e49"},
    "dark_css_variables": {"color-brand-primary": "#7fc8a0", "color-brand-content": "#7fc8a0"},
}
copybutton_exclude = ".linenos, .gp, .go"
