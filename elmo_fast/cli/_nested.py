"""Commands of two words (`elmo-fast plot senses`), each kind with a parser of its own."""

import difflib
import os
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from elmo_fast.errors import ElmoFastError


class Kind(NamedTuple):
    """What the second word names: what it does, its parser, and the function that takes the parsed options."""

    help: str
    build_parser: Callable[[], Any]
    run: Callable[[Any], int | None]


class NestedParser:
    """Chooses among `elmo-fast COMMAND KIND ...` and lets the kind's own parser read the rest.

    command: the first word; kinds: by the second word; default: the kind used if the second word names none.
    """

    def __init__(self, command: str, description: str, kinds: Mapping[str, Kind], default: str | None = None) -> None:
        self.command, self.description, self.kinds, self.default = command, description, dict(kinds), default
        self._parser: Any = None
        self._run: Callable[[Any], int | None]

    def format_help(self) -> str:
        """The text of `elmo-fast COMMAND --help`."""
        width = max(map(len, self.kinds))
        lines = [f"  {name:<{width}}  {kind.help}" for name, kind in self.kinds.items()]
        usage = f"usage: elmo-fast {self.command} KIND [options]"
        tells = f"(elmo-fast {self.command} KIND --help lists the options)"
        other = [] if self.default is None else ["", f"Without a kind: {self.default}."]
        description = textwrap.fill(self.description, shutil.get_terminal_size().columns - 2)  # as argparse does
        return "\n".join([f"{usage}    {tells}", "", description, "", *lines, *other])

    def parse_args(self, words: Sequence[str]) -> Any:
        """The options of the kind, for `run`; prints the help and exits if requested."""
        if not words or words[0] in ("-h", "--help"):
            print(self.format_help())
            raise SystemExit(0 if words else 2)
        kind, rest = self._split(list(words))
        self._parser, self._run = self.parser_of(kind), self.kinds[kind].run
        return self._parser.parse_args(rest)

    def run(self, arguments: Any) -> int | None:
        """Run the kind of which `parse_args` gave the options."""
        return self._run(arguments)

    def told(self, error: Exception, arguments: Any) -> str:
        """As Parser's, of the kind that was chosen."""
        told: str = self._parser.told(error, arguments)
        return told

    def as_typed(self, sentence: str) -> str:
        """As Parser's, of the kind that was chosen."""
        typed: str = self._parser.as_typed(sentence)
        return typed

    def parser_of(self, kind: str) -> Any:
        """The parser of a kind."""
        return self.kinds[kind].build_parser()

    def _split(self, words: list[str]) -> tuple[str, list[str]]:
        first = words[0]
        if first in self.kinds:
            return first, words[1:]
        close = difflib.get_close_matches(first, self.kinds, n=1)
        if self.default is not None and not (close and not os.path.exists(first)):
            return self.default, words
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.kinds)}"
        raise ElmoFastError(f"`elmo-fast {self.command}` has no {first!r}; {hint}")
