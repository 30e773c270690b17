"""Commands of two words (`elmo-fast plot senses`): one file per second word, loaded on demand."""

import difflib
import importlib
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmo_fast.errors import ElmoFastError


@dataclass(frozen=True)
class Chosen:
    """The command that the second word names, and its parsed options."""

    module: Any
    arguments: Any

    def run(self) -> int | None:
        """Runs it."""
        status: int | None = self.module.run(self.arguments)
        return status


class NestedParser:
    """Chooses among `elmo-fast COMMAND KIND ...` and lets the kind's own parser read the rest.

    command: the first word; kinds: second word -> what it does, a module elmo_fast.cli.<command>.<kind> each, with
    build_parser() and run(arguments); default: the kind used if the second word names none.
    """

    def __init__(self, command: str, description: str, kinds: Mapping[str, str], default: str | None = None) -> None:
        self.command, self.description, self.kinds, self.default = command, description, dict(kinds), default
        self._parser: Any = None

    def format_help(self) -> str:
        """The text of `elmo-fast COMMAND --help`."""
        width = max(map(len, self.kinds))
        lines = [f"  {name:<{width}}  {text}" for name, text in self.kinds.items()]
        usage = f"usage: elmo-fast {self.command} KIND [options]"
        tells = f"(elmo-fast {self.command} KIND --help lists the options)"
        other = [] if self.default is None else ["", f"Without a kind: {self.default}."]
        description = textwrap.fill(self.description, shutil.get_terminal_size().columns - 2)  # as argparse does
        return "\n".join([f"{usage}    {tells}", "", description, "", *lines, *other])

    def parse_args(self, words: Sequence[str]) -> Chosen:
        """The kind and its options; prints the help and exits if requested."""
        if not words or words[0] in ("-h", "--help"):
            print(self.format_help())
            raise SystemExit(0 if words else 2)
        kind, rest = self._split(list(words))
        module = self._module(kind)
        self._parser = module.build_parser()
        return Chosen(module, self._parser.parse_args(rest))

    def told(self, error: Exception, chosen: Chosen) -> str:
        """As Parser's, of the kind that was chosen."""
        told: str = self._parser.told(error, chosen.arguments)
        return told

    def as_typed(self, sentence: str) -> str:
        """As Parser's, of the kind that was chosen."""
        typed: str = self._parser.as_typed(sentence)
        return typed

    def parser_of(self, kind: str) -> Any:
        """The parser of a kind."""
        return self._module(kind).build_parser()

    def _module(self, kind: str) -> Any:
        return importlib.import_module(f"elmo_fast.cli.{self.command}.{kind}")

    def _split(self, words: list[str]) -> tuple[str, list[str]]:
        first = words[0]
        if first in self.kinds:
            return first, words[1:]
        close = difflib.get_close_matches(first, self.kinds, n=1)
        if self.default is not None and not (close and not os.path.exists(first)):
            return self.default, words
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.kinds)}"
        raise ElmoFastError(f"`elmo-fast {self.command}` has no {first!r}; {hint}")
