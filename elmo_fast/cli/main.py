"""The console entry: finds the command, runs it, and turns user errors into one sentence and an exit status."""

import argparse
import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli._parser import Parser
from elmo_fast.errors import ElmoFastError, sentence_of
from elmo_fast.memory import is_shortage, told

# Command -> what it does. The module is elmo_fast.cli.<command>, with build_parser() and run(arguments) -> int | None;
# of a command of two words, KINDS: by the second word its help and these two functions; and DESCRIPTION.
COMMANDS = {
    "vocab": "count the words of a corpus and write a vocabulary file",
    "prepare": "convert text files to the numbers that pretraining reads",
    "pretrain": "train a bidirectional language model on your own text",
    "eval": "measure the perplexity of held-out text under a pretrained model",
    "plot": "draw pictures: curves of a run, layer weights, words, senses of a word",
    "report": "measure whether ELMo helps on your data: the paper's tables and figures on a small scale",
    "embed": "write the vectors of every token of a text file (AllenNLP's `allennlp elmo`)",
    "merge": "join the parts that several processes of `embed` wrote into one file",
    "neighbours": "find the tokens of a corpus that are nearest to a token in its sentence",
    "task": "train, score and use a tagger or classifier over ELMo: task train, task eval, task predict",
    "convert": "convert a model of any format to config.json + safetensors, or to bilm-tf's options.json + HDF5",
    "upload": "upload a model and a page about it to the Hugging Face hub",
    "models": "list the models with a name: their sizes, and which are downloaded",
    "download": "download a published model by its name, or a model from the Hugging Face hub",
    "static": "static word vectors: train, evaluate, find neighbours, convert, export from a model",
    "cache-vocab": "write the context-free vector of each word of a vocabulary (bilm-tf's dump_token_embeddings)",
    "check": "compare every kernel of a GPU with plain torch",
    "info": "show versions, CPU, and which kernels run here and why not the others",
}
ALIASES = {
    "train": "pretrain",
    "perplexity": "eval",
    "test": "eval",
    "dump": "embed",
    "elmo": "embed",
    "neighbors": "neighbours",
}
# Older names of options.
RENAMED = {
    "--outdir": "--out_dir",
    "--outfile": "--output",
    "--output_file": "--output",
    "--columns": "--column",
    "--train": "--train_path",
    "--dev": "--dev_path",
    "--test": "--test_path",
}
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


def command_module(name: str) -> Any:
    """Return the module of a command."""
    return importlib.import_module(f"elmo_fast.cli.{name.replace('-', '_')}")


def parsers(chosen: str | None = None) -> dict[str, Parser]:
    """Return the parser of `elmo-fast`, named "", and below it of the chosen command, by name: "embed", "plot senses".

    chosen: None is all commands, whose modules are then imported.
    """
    top = Parser(
        prog="elmo-fast",
        description="Runs, trains and evaluates ELMo. `elmo-fast COMMAND --help` lists the options of a command; they "
        "may be written with hyphens or underscores (--weight-file, --weight_file).",
    )
    top.add_argument("--version", action="version", version=f"elmo-fast {__version__}")
    commands, found = top.add_subcommands(dest="command", metavar="COMMAND"), {"": top}

    def add(subcommands: Any, name: str, parser: Parser, sentence: str, aliases: Sequence[str] = ()) -> Any:
        subcommands.add_subcommand(name.split()[-1], parser, help=sentence, aliases=aliases)
        parser.prog = f"elmo-fast {name}"
        return parser

    for name, sentence in COMMANDS.items():
        module = command_module(name) if chosen in (None, name) else None
        if module is None:
            parser = Parser()
        elif hasattr(module, "KINDS"):
            parser = found[name] = Parser(description=module.DESCRIPTION)
        else:
            parser = found[name] = module.build_parser()
        add(commands, name, parser, sentence, [alias for alias, command in ALIASES.items() if command == name])
        if module is not None and hasattr(module, "KINDS"):
            kinds = parser.add_subcommands(dest="kind", metavar="KIND")
            for kind, (told, build_parser, _) in module.KINDS.items():
                found[f"{name} {kind}"] = add(kinds, f"{name} {kind}", build_parser(), told)
    return found


def normalised(argv: Sequence[str]) -> list[str]:
    """Return `argv` with the hyphens in option names changed to underscores, up to a bare `--`, and --config first.

    jsonargparse lets what comes later win: so what is typed stands above a file.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    configs, others, words = list[str](), list[str](), iter(argv[:end])
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
            name = RENAMED.get(name, name)
        if name == "--config":
            configs += [name, value if equals else next(words, "")]
        else:
            others.append(name + equals + value)
    return [*configs, *others, *argv[end:]]


@contextlib.contextmanager
def terminated_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the stack (so that temporary files are removed) instead of killing at once."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread: signals are handled elsewhere
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def show_warning(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
    """Print a warning as one line, without the source line that Python adds."""
    print(f"elmo-fast: warning: {message}", file=sys.stderr)


def run_command(name: str, argv: Sequence[str]) -> int:
    """Parse the words after a command's name and run it; an error names the option that it is about.

    A ShortageError says what to lower if memory runs out.
    """
    arguments: Any = None
    try:
        known, module = parsers(name), command_module(name)
        kinds = getattr(module, "KINDS", {})
        if name == "plot" and argv and not argv[0].startswith("-") and argv[0] not in kinds:
            argv = ["curves", *argv]  # `elmo-fast plot RUN`
        begin = 1 if kinds else 0
        arguments = known[""].parse_args([name, *argv[:begin], *normalised(argv[begin:])])[name]
        run = kinds[arguments.kind][2] if kinds else module.run
        if kinds:
            name, arguments = f"{name} {arguments.kind}", arguments[arguments.kind]
        known[name].check_outputs(arguments)
        return int(run(arguments) or 0)
    except Exception as error:
        if not isinstance(error, ElmoFastError) and is_shortage(error):
            raise told(error, vars(arguments or argparse.Namespace())) from error
        if arguments is None or isinstance(error, BrokenPipeError) or not isinstance(error, ElmoFastError | OSError):
            raise
        raise ElmoFastError(known[name].about(error, arguments)) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run `elmo-fast COMMAND ...`; return the exit status: 0, 2 for an error of the user, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return status_of(words)
        finally:
            sys.stdout.flush()  # also when a parser prints its help and exits
    except OSError as error:
        # Discards the interpreter's last flush. A reader of our output that has exited (`| head`) is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        print(f"elmo-fast: error: standard output: {sentence_of(error)}", file=sys.stderr)
        return USER_ERROR


def status_of(words: Sequence[str]) -> int:
    """Run the command of these words, as `main` does; BrokenPipeError if the reader of the output has exited."""
    name = words[0].replace("_", "-") if words else ""
    name = ALIASES.get(name, name)
    if name == "help":
        return status_of([*words[1:2], "--help"])
    if name not in COMMANDS:
        completes = name.startswith("--print-completion")  # of the options of all commands
        top = parsers(None if completes else "")[""]
        top.parse_args(normalised(words)) if words else top.print_help()
        return USER_ERROR
    try:
        with terminated_as_exit(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            return run_command(name, words[1:])
    except BrokenPipeError:
        raise
    except ElmoFastError as error:
        message = str(error)
    except OSError as error:
        message = sentence_of(error)
    except KeyboardInterrupt:
        print(f"\nelmo-fast {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(f"elmo-fast {name}: error: {message}", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    raise SystemExit(main())
