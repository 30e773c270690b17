"""What the commands share: a parser with the common options, and what those options do."""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from typing import Any

from elmo_fast.devices import device_named
from elmo_fast.errors import ElmoFastError
from elmo_fast.threads import check_threads, unhindered_threads

# One sentence for each option that names a text.
TEXT = "text: one sentence per line, tokens separated by spaces; plain, .gz or .zst"


def new_parser(
    command: str,
    description: str,
    config_action: Any = None,
    config_help: str = "YAML, JSON or TOML file of these options",
    shared: Sequence[str] = ("seed", "device", "threads"),
) -> Any:
    """A jsonargparse parser for `elmo-fast COMMAND` with --config, --print_config, -v, -q, and what it uses of --seed,
    --device and --threads.

    Option names have underscores; `main.normalised` converts the hyphens that a user types.
    config_action, config_help: a subclass of ConfigFile for --config, and its help.
    """
    from elmo_fast.cli._config_file import ConfigFile
    from elmo_fast.cli._parser import Parser

    parser = Parser(prog=f"elmo-fast {command}", description=description)
    parser.add_argument("--config", action=config_action or ConfigFile, help=config_help)
    parser._option_string_actions["--print_config"].help = "print the options in force, as YAML, and exit"
    parser.add_argument("-v", "--verbose", action="store_true", help="print more")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only warnings and errors")
    parser.shared(*shared)
    return parser


def values_of(arguments: Any, *kinds: Any) -> dict[str, Any]:
    """The options that are fields of these configurations (`Parser.fields`), by name."""
    given = {}
    for field in (field for kind in kinds for field in dataclasses.fields(kind)):
        value = getattr(arguments, field.name)
        given[field.name] = tuple(value) if isinstance(field.default, tuple) else value
    return given


def named(arguments: Any, *names: str) -> dict[str, Any]:
    """These options by name, for a function that calls its arguments the same."""
    return {name: getattr(arguments, name) for name in names}


def logger() -> logging.Logger:
    """The logger of the command line: info by default, warnings with -q, everything with -v, on stderr."""
    return logging.getLogger("elmo_fast")


def set_up_logging(arguments: Any) -> None:
    """Applies -v and -q."""
    log = logger()
    log.setLevel(logging.DEBUG if arguments.verbose else logging.WARNING if arguments.quiet else logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers[:] = [handler]


def set_up(arguments: Any) -> Any:
    """Applies the common options and returns the torch device; ElmoFastError if this machine does not have it."""
    set_up_logging(arguments)
    import torch

    if arguments.threads is not None:
        check_threads(arguments.threads, "--threads")
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(getattr(arguments, "seed", 0))
    device = device_named(name := getattr(arguments, "device", "cpu"), "--device")
    if device.type not in ("cpu", "cuda"):
        raise ElmoFastError(f"--device must be a CPU or CUDA device; got {name!r}")
    return device


def leave_busy_processors(arguments: Any) -> None:
    """Without --threads, uses one thread for each processor that other programs leave free, and says so.

    For commands that run a trained model; training keeps the number that it started with.
    """
    import torch

    if arguments.threads is None:
        count, why = unhindered_threads(torch.get_num_threads())
        torch.set_num_threads(count)
        logger().info("cpu    threads: %d: %s (--threads N sets the number)", count, why)
