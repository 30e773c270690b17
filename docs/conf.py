"""The documentation's build: `make docs`, warnings are errors."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import _commands  # noqa: E402

import elmo_fast  # noqa: E402

project = "elmo_fast"
copyright = "the elmo_fast maintainers"
version = release = elmo_fast.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "report"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["math"]  # ```math, which GitHub renders too
default_role = "code"
smartquotes = False  # "top" and --layer are shown as they are typed
html_theme = "furo"
html_title = f"elmo_fast {release}"
html_static_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# "Returns" names what is returned, as "Args" does; napoleon would take the first name for a type.
napoleon_custom_sections = [("Source", "notes_style"), ("Returns", "params_style")]

# "name: meaning" or "one, two: meaning": an argument, or several of them.
_ENTRY = re.compile(r"^ *(?:\w+(?: \[[^\]]*\])?)(?:, \w+)*: (?=\S)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Source|Example|Yields)\b")


def as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are plain text: formulas become literal blocks, lines of arguments lists, marks characters."""
    out: list[str] = []
    section, formula = "", False
    for line in lines:
        if _SECTION.match(line):
            section = line.partition(":")[0]
            if out and out[-1].strip():
                out.append("")
        formula = line.startswith("    ") and (formula or (not section and (not out or not out[-1].strip())))
        if formula:
            out += ["::", "", line] if not out or not out[-1].startswith("    ") else [line]
            continue
        if not section and _ENTRY.match(line) and out and out[-1].strip():
            out.append("")
        if out and out[-1].startswith("    ") and not section and line.strip():
            out.append("")
        out.append(_literal(line))
    lines[:] = out


def _literal(line):
    """Stars, bars and trailing underscores are characters here, not marks."""
    line = re.sub(r": ([A-Z]\.)", r": \\\1", line)  # a letter and a full stop would begin a numbered list
    return re.sub(r"(?<![\\*`])\*(?!\*)|\||(?<=\w)_(?=[\s,.;)]|$)", lambda m: "\\" + m.group(), line)


def setup(app):
    """Sphinx calls this."""
    app.connect("builder-inited", _commands.write_pages)
    # Before napoleon (500), which turns sections into fields.
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)
