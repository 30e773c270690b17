"""--config: a YAML, JSON or TOML file of options; errors name the file and line."""

import difflib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonargparse
import yaml

from elmo_fast.errors import ElmoFastError, sentence_of

# The options that a file cannot set.
NO_OPTIONS = ("help", "config", "print_config")


class Given(NamedTuple):
    """An option in a file: its name there, its line from 1, where the name begins and ends, its value."""

    name: str
    line: int
    place: slice
    value: Any


class ConfigFile(jsonargparse.ActionConfigFile):
    """jsonargparse's --config, of a file that is read here first, for line numbers and old option names."""

    def path_of(self, value: str) -> str:
        """The file that the option's value names."""
        return value

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = self.path_of(values)
        text, given = read_config_file(path)
        known = {action.dest for action in parser._actions}.difference(NO_OPTIONS)
        parser.given_in_file = checked(path, given, known, parser.old_names)
        for each in reversed(given):
            text = text[: each.place.start] + parser.old_names.get(each.name, each.name) + text[each.place.stop :]
        super().__call__(parser, cfg, text, option_string)
        cfg[self.dest][-1] = path


def checked(
    path: str, given: list[Given], known: set[str], old_names: Mapping[str, str]
) -> dict[str, tuple[str, Given]]:
    """Option -> file and what it gives; ElmoFastError for a name that is unknown or given twice."""
    found: dict[str, tuple[str, Given]] = {}
    for each in given:
        option = old_names.get(each.name, each.name)
        where = f"--config {path}, line {each.line}"
        if option not in known:
            close = difflib.get_close_matches(each.name.replace("-", "_"), known, n=1)
            raise ElmoFastError(
                f"{where}: there is no option {each.name!r}" + (f"; did you mean {close[0]}?" if close else "")
            )
        if option in found:
            raise ElmoFastError(f"{where}: {each.name} is given again, after line {found[option][1].line}; remove one")
        found[option] = path, each
    return found


def read_config_file(path: str) -> tuple[str, list[Given]]:
    """A file as YAML text, and the options in it; ElmoFastError naming file and line if there are none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ElmoFastError(f"--config {path}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise ElmoFastError(f"--config: {sentence_of(error)}") from error
    if not path.endswith(".toml"):
        return text, _options_of(path, text)
    as_yaml = _yaml_of(path, text)
    lines = text.splitlines()
    return as_yaml, [each._replace(line=_line_of(each.name, lines)) for each in _options_of(path, as_yaml)]


def _options_of(path: str, text: str) -> list[Given]:
    try:
        node, values = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ElmoFastError(f"--config {path}{where}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ElmoFastError(f"--config {path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else f"a {node.id}, line {node.start_mark.line + 1}"
        raise ElmoFastError(f"--config {path}: wanted options, each as in `seed: 1`; found {found}")
    keys = [key for key, _ in node.value if key.value != "<<"]
    return [
        Given(
            str(key.value),
            key.start_mark.line + 1,
            slice(key.start_mark.index, key.end_mark.index),
            values.get(key.value),
        )
        for key in keys
    ]


def _yaml_of(path: str, text: str) -> str:
    import tomllib

    try:
        return str(yaml.safe_dump(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ElmoFastError(f"--config {path}: not TOML: {error}") from error


def _line_of(name: str, lines: list[str]) -> int:
    """A key's line in TOML, whose parser keeps none: the key begins it, maybe in quotes or in a table's brackets."""
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}\b")
    return next((number for number, line in enumerate(lines, start=1) if pattern.match(line)), 1)
