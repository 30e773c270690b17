"""The console entry: finds the command, runs it, and turns user errors into one sentence and an exit status."""

import argparse
import contextlib
import difflib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli._nested import NestedParser
from elmo_fast.errors import ElmoFastError, sentence_of
from elmo_fast.memory import is_shortage, told

# Command -> what it does. The module is elmo_fast.cli.<command>, with build_parser() and run(arguments) -> int | None;
# a NestedParser has the functions to run.
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
    "download": "download a model from the Hugging Face hub",
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
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


def overview() -> str:
    """The text of `elmo-fast --help`."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    aliases = ", ".join(f"{alias} = {name}" for alias, name in ALIASES.items())
    return (
        "usage: elmo-fast COMMAND [options]    (elmo-fast COMMAND --help lists the options)\n\n"
        f"Runs, trains and evaluates ELMo.\n\n{commands}\n\nOther names: {aliases}.\n"
        "Options may be written with hyphens or underscores (--weight-file, --weight_file)."
    )


def normalised(argv: Sequence[str]) -> list[str]:
    """`argv` with the hyphens in option names changed to underscores, up to a bare `--`; values stay."""
    out = list(argv)
    for i, word in enumerate(out):
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            out[i] = "--" + name.replace("-", "_") + equals + value
    return out


def command_module(name: str) -> Any:
    """The module that serves a command or alias; ElmoFastError names the closest command if there is none."""
    name = name.replace("_", "-")
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(COMMANDS)}"
        raise ElmoFastError(f"there is no command {name!r}; {hint}")
    return importlib.import_module(f"elmo_fast.cli.{name.replace('-', '_')}")


@contextlib.contextmanager
def terminated_as_exit() -> Iterator[None]:
    """While open, SIGTERM unwinds the stack (so that temporary files are removed) instead of killing at once."""

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
    """Prints a warning as one line, without the source line that Python adds."""
    print(f"elmo-fast: warning: {message}", file=sys.stderr)


def run_command(name: str, argv: Sequence[str]) -> int:
    """Parses `argv` with the command's parser and runs it; an ElmoFastError names the argument that it is about, and a
    ShortageError says what to lower if memory runs out."""
    arguments: Any = None
    try:
        module = command_module(name)
        parser = module.build_parser()
        arguments = parser.parse_args(normalised(argv))
        warnings.showwarning = lambda message, *about: show_warning(parser.as_typed(str(message)), *about)
        run = parser.run if isinstance(parser, NestedParser) else module.run
        return int(run(arguments) or 0)
    except Exception as error:
        if not isinstance(error, ElmoFastError) and is_shortage(error):
            raise told(error, vars(arguments or argparse.Namespace())) from error
        if arguments is None or isinstance(error, BrokenPipeError) or not isinstance(error, ElmoFastError | OSError):
            raise
        raise ElmoFastError(parser.told(error, arguments)) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elmo-fast COMMAND ...`; returns the exit status: 0, 2 for an error of the user, 130 for Ctrl-C."""
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
    """Runs the command of these words, as `main` does; BrokenPipeError if the reader of the output has exited."""
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return status_of([words[1], "--help"])
        print(overview())
        return 0 if words else USER_ERROR
    if words[0] == "--version":
        print(f"elmo-fast {__version__}")
        return 0
    try:
        with terminated_as_exit(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            return run_command(words[0], words[1:])
    except BrokenPipeError:
        raise
    except ElmoFastError as error:
        message = str(error)
    except OSError as error:
        message = sentence_of(error)
    except KeyboardInterrupt:
        print(f"\nelmo-fast {words[0]}: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(f"elmo-fast {words[0]}: error: {message}", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    raise SystemExit(main())
