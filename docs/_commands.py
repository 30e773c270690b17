"""A page for each command, made of its own parser when the documentation is built: nothing on them is typed twice."""

import argparse
import os
import pathlib
import re

from elmo_fast._io.atomic_file import atomic_file
from elmo_fast.cli.main import parsers

FOLDER = "commands"


def write_pages(app):
    """Writes the pages into the folder of sources, where Sphinx then finds them; those of no command are removed."""
    folder = pathlib.Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    os.environ["COLUMNS"] = "100"  # as wide are the lines of usage
    known = parsers()
    pages = {name.replace(" ", "-") or "index": _page(name, known) for name in known}
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # or Sphinx would read it again
            with atomic_file(path) as aside:
                aside.write_text(text, encoding="utf-8")


def _page(name, known):
    """Usage, what the command does, and every option as an entry that can be linked to; or the commands below it."""
    parser = known[name]
    if parser._subcommands_action is not None:
        below = [each.replace(" ", "-") for each in known if each and each.rpartition(" ")[0] == name]
        title = f"elmo-fast {name}" if name else "Command line"
        return _titled(title, _literally(parser.format_help()), _contents(below))
    formatter = parser._get_formatter()
    parts = [_literally(parser.format_usage()), _prose(parser.description), f".. program:: {parser.prog}"]
    for group in parser._action_groups:
        entries = [_entry(formatter, action) for action in group._group_actions]
        if entries:
            parts += [f".. rubric:: {group.title}", _prose(group.description or ""), *entries]
    return _titled(parser.prog, *parts)


def _entry(formatter, action):
    # jsonargparse's own says the same, while it prints a help.
    named = argparse.HelpFormatter._format_action_invocation(formatter, action)
    return f".. option:: {named}\n\n   {_prose(formatter._expand_help(action) if action.help else '')}"


def _prose(text):
    """One paragraph: what stands between backticks and options' names as code, the rest character by character."""
    parts = re.split(r"`([^`]+)`|((?<!\w)--\w+)", " ".join(text.split()))
    plain = [re.sub(r"([\\*`|_])", r"\\\1", each or "") for each in parts[::3]]
    code = [f"``{quoted or option}``" for quoted, option in zip(parts[1::3], parts[2::3], strict=True)]
    pieces = [plain[0]]
    for inline, after in zip(code, plain[1:], strict=True):
        pieces += ["\\ " * bool(re.search(r"[\w\\]$", pieces[-1])), inline, "\\ " * bool(re.match(r"\w", after)), after]
    return "".join(pieces)


def _literally(text):
    return "::\n\n" + "\n".join(f"   {line}" for line in text.strip().splitlines())


def _contents(names):
    return ".. toctree::\n   :maxdepth: 1\n\n" + "\n".join(f"   {name}" for name in names)


def _titled(title, *parts):
    return "\n\n".join([f"{title}\n{'=' * len(title)}", *filter(None, parts)]) + "\n"
