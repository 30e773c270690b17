"""--config: a YAML, JSON or TOML file of options; errors name the file and line."""

import difflib
import json
import re
from typing import Any, NamedTuple

import jsonargparse
import yaml

from elmo_fast.errors import ElmoFastError, sentence_of

# The options that a file cannot set.
NO_OPTIONS = ("help", "config", "print_config")


class Given(NamedTuple):
    """An option in a file: its name there, its line from 1, its value."""

    name: str
    line: int
    value: Any


class ConfigFile(jsonargparse.ActionConfigFile):
    """jsonargparse's --config, of a file that is read here first: for line numbers, for old option names, and because
    jsonargparse lets a file replace what is typed before it."""

    def path_of(self, value: str) -> str:
        """The file that the option's value names."""
        return value

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = self.path_of(values)
        options = checked(path, read_config_file(path), parser)
        parser.given_in_file |= {option: (path, each) for option, each in options.items()}
        positional = {action.dest for action in parser._actions if not action.option_strings}
        typed = parser.typed | {name for name in positional if cfg.get(name) is not None}
        # As --print_config shows them, options that are not set are null.
        given = {
            option: each.value
            for option, each in options.items()
            if each.value is not None or parser.get_default(option) is not None
        }
        replaced = typed | parser.excluded_by(typed)
        kept = {option: value for option, value in given.items() if option not in replaced}
        for option in parser.excluded_by(name for name, value in kept.items() if value != parser.get_default(name)):
            if option not in typed:  # an earlier file's
                cfg[option] = parser.get_default(option)
        super().__call__(parser, cfg, json.dumps(kept, default=str), option_string)
        cfg[self.dest][-1] = path


def checked(path: str, given: list[Given], parser: Any) -> dict[str, Given]:
    """Option -> what the file gives; ElmoFastError for a name that is unknown or given twice."""
    known = {action.dest for action in parser._actions}.difference(NO_OPTIONS)
    found: dict[str, Given] = {}
    for each in given:
        name, where = parser.old_names.get(each.name, each.name), f"--config {path}, line {each.line}"
        option, value = parser.spellings.get(name, (name, each.value))
        if option not in known:
            close = difflib.get_close_matches(each.name.replace("-", "_"), known, n=1)
            raise ElmoFastError(
                f"{where}: there is no option {each.name!r}" + (f"; did you mean {close[0]}?" if close else "")
            )
        if option != name and each.value is not True:  # a flag that is off
            if each.value is not False:
                raise ElmoFastError(f"{where}: {each.name} must be true or false; got {each.value}")
            continue
        if option in found:
            before = found[option]
            how = "given again, after" if option == name else f"excluded by {before.name} on"
            raise ElmoFastError(f"{where}: {each.name} is {how} line {before.line}; remove one")
        found[option] = each._replace(value=value)
    return found


def read_config_file(path: str) -> list[Given]:
    """The options in a file, in its order; ElmoFastError naming file and line if there are none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ElmoFastError(f"--config {path}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise ElmoFastError(f"--config: {sentence_of(error)}") from error
    return _options_of_toml(path, text) if path.endswith(".toml") else _options_of_yaml(path, text)


def _options_of_yaml(path: str, text: str) -> list[Given]:
    try:
        node, values = yaml.compose(text, yaml.SafeLoader), jsonargparse.get_loader("yaml")(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ElmoFastError(f"--config {path}{where}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ElmoFastError(f"--config {path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else f"a {node.id}, line {node.start_mark.line + 1}"
        raise ElmoFastError(f"--config {path}: wanted options, each as in `seed: 1`; found {found}")
    if not isinstance(values, dict):  # what jsonargparse makes of {a, b}
        values = dict.fromkeys(key.value for key, _ in node.value)
    listed = [
        Given(str(key.value), key.start_mark.line + 1, values.get(key.value))
        for key, _ in node.value
        if key.value != "<<"
    ]
    merged = values.keys() - {each.name for each in listed}
    return listed + [Given(str(name), node.start_mark.line + 1, values[name]) for name in sorted(merged, key=str)]


def _options_of_toml(path: str, text: str) -> list[Given]:
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ElmoFastError(f"--config {path}: not TOML: {error}") from error
    lines = text.splitlines()
    return [Given(name, _line_of(name, lines), value) for name, value in values.items()]


def _line_of(name: str, lines: list[str]) -> int:
    """A key's line in TOML, whose parser keeps none: the key begins it, maybe in quotes or in a table's brackets."""
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}\b")
    return next((number for number, line in enumerate(lines, start=1) if pattern.match(line)), 1)
