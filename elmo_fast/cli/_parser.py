"""The commands' parser: an error is one sentence, with the option that was probably meant."""

import difflib
import re
import sys
from typing import Any, NoReturn

import jsonargparse

from elmo_fast.cli._config_file import Given
from elmo_fast.cli._outputs import check_outputs

UNKNOWN = "unrecognized arguments: "
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser, whose errors are one line instead of the usage of all options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writes: dict[str, tuple[str, ...]] = {}
        self.old_names: dict[str, str] = {}
        self.given_in_file: dict[str, tuple[str, Given]] = {}

    def renamed(self, old: str, option: str) -> None:
        """Accepts `old` for `option`, as a flag and in configuration files; --help does not list it."""
        self.old_names[old] = option

    def writes(self, option: str, *files: str) -> None:
        """Declares that `option` names a file to write, or a folder for these `files`."""
        self._writes[option] = files

    def parse_args(self, args: Any = None, *more: Any, **kwargs: Any) -> Any:
        """The options; ElmoFastError if an output would replace an input."""
        words = [self._newest(word) for word in args] if args and self.old_names else args
        arguments = super().parse_args(words, *more, **kwargs)
        check_outputs(arguments, self._writes)
        return arguments

    def _newest(self, word: str) -> str:
        name, equals, value = word.partition("=")
        known = name.startswith("--") and self.old_names.get(name[2:])
        return f"--{known}{equals}{value}" if known else word

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own swallows write errors: a closed pipe or a full disk would look like a success."""
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints the error and how to list the options, and exits with status 2."""
        if not self.exit_on_error:
            super().error(message, ex)
        options = list(self._option_string_actions)
        told = f"{self._where(message)}{_plain(message, options)}{_meant(message, options)}"
        print(f"{self.prog}: error: {told}", file=sys.stderr)
        print(f"{self.prog} --help lists the options", file=sys.stderr)
        self.exit(2)

    def _where(self, message: str) -> str:
        """'--config run.yaml, line 3: ' if the message is about a value from a file."""
        path, given = self.given_in_file.get(_key_of(message), (None, None))
        told = given is not None and message.rstrip().endswith(f"Got value: {given.value}")
        return f"--config {path}, line {given.line}: " if given is not None and told else ""


def _key_of(message: str) -> str:
    found = re.match(r'Parser key "(?:\w+\.)*(\w+)"', message)
    return found[1] if found else ""


def _plain(message: str, options: list[str]) -> str:
    """jsonargparse's message in one line, in the words that the user typed: --to, and not 'Parser key "to"'."""
    line = " ".join(message.split())
    if found := re.match(r'Parser key "(?:\w+\.)*(\w+)": ', line):
        option = f"--{found[1]}"
        line = f"{option if option in options else found[1]}: {line[found.end() :]}"
    line = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"wanted one of \1", line)
    line = re.sub(r"Expected a <class '(\w+)'>", lambda found: f"wanted {KINDS.get(found[1], found[1])}", line)
    return line.replace(". Got value: ", "; got ")


def _meant(message: str, options: list[str]) -> str:
    """'; did you mean --dev_path?' if the message names an unknown option close to a known one."""
    if not message.startswith(UNKNOWN):
        return ""
    unknown = [word.partition("=")[0] for word in message.removeprefix(UNKNOWN).split() if word.startswith("--")]
    close = [each for word in unknown for each in difflib.get_close_matches(word, options, n=1)]
    return f"; did you mean {' and '.join(close)}?" if close else ""
