"""The console entry: finds the command, runs it, and turns user errors into one sentence and an exit status."""

import argparse
import contextlib
import importlib
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from elmo_fast import __version__
from elmo_fast.cli._parser import Parser
from elmo_fast.errors import ElmoFastError, did_you_mean, printable, sentence_of
from elmo_fast.memory import gpu_shortage, is_shortage, shortage_error
from elmo_fast.threads import let_waiting_threads_sleep

# Command -> its module below elmo_fast.cli, and what it does. Groups of commands have no module.
COMMANDS = {
    "vocab": ("corpus", "count the words of a corpus and write a vocabulary file"),
    "prepare": ("corpus", "convert text files to the numbers that pretraining reads"),
    "pretrain": ("pretrain", "train a bidirectional language model on your own text"),
    "eval": ("eval", "measure the perplexity of held-out text under a pretrained model"),
    "plot": ("", "draw pictures: curves of a run, layer weights, words, senses of a word"),
    "plot curves": ("plot", "perplexity, speed and gradient norm of a pretraining run"),
    "plot layers": ("plot", "weight of each layer in the scalar mixes of a model or a task"),
    "plot words": ("plot", "words or tokens in two dimensions, by t-SNE or PCA of their vectors"),
    "plot senses": ("plot", "occurrences of a word in a text by sense, as a page with their sentences"),
    "plot projector": ("plot", "vectors of words or tokens as files for TensorBoard's projector"),
    "report": ("task", "measure whether ELMo helps on your data: the paper's tables and figures on a small scale"),
    "embed": ("embed", "write the vectors of every token of a text file (AllenNLP's `allennlp elmo`)"),
    "merge": ("embed", "join the parts that several processes of `embed` wrote into one file"),
    "neighbours": (
        "vectors",
        "find the sentences of a text nearest to a sentence, or the tokens nearest to a token in its sentence",
    ),
    "task": ("", "train, score and use a tagger or classifier over ELMo: task train, task eval, task predict"),
    "task train": ("task", "train on labelled sentences until the dev score no longer improves"),
    "task eval": ("task", "score a trained model on labelled sentences"),
    "task predict": ("task", "label sentences with a trained model"),
    "convert": (
        "models",
        "convert a model of any format to config.json + safetensors, or to bilm-tf's options.json + HDF5",
    ),
    "upload": ("models", "upload a model and a page about it to the Hugging Face hub"),
    "models": ("models", "list the models with a name: their sizes, and which are downloaded"),
    "download": ("models", "download a published model by its name, or a model from the Hugging Face hub"),
    "static": ("", "static word vectors: train, evaluate, find neighbours, convert, export from a model"),
    "static train": ("static", "train word vectors on your own text: skip-gram or CBOW (by gensim), or GloVe"),
    "static eval": ("static", "score analogies and the similarity of word pairs, with the coverage of each set"),
    "static neighbours": ("static", "list the words nearest to words, or to king - man + woman"),
    "static convert": ("static", "convert between word2vec's files, GloVe's and our own format"),
    "static export": ("static", "export an ELMo model's word vectors, context-free or averaged over a text"),
    "cache-vocab": (
        "vectors",
        "write the context-free vector of each word of a vocabulary (bilm-tf's dump_token_embeddings)",
    ),
    "check": ("check", "compare every kernel of a GPU with plain torch"),
    "info": ("info", "show versions, CPU, and which kernels run here and why not the others"),
}
# Group of commands -> its description.
GROUPS = {
    "plot": "Draw pictures. `elmo-fast plot RUN` is `elmo-fast plot curves RUN`.",
    "task": "Train, score and use a tagger (a label per word) or a classifier (a label per sentence).",
    "static": "Context-free word vectors, for comparison with ELMo. An input's format is detected from its content, an "
    "output's from its name: .bin (word2vec binary), .txt or .vec (word2vec text), .safetensors (our own, fastest); "
    "the first three also with .gz.",
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


def functions_of(command: str) -> tuple[Callable[[Parser], None], Callable[[Any], Any]]:
    """Return WORD_options, which adds a command's options to its parser, and run_WORD, whose docstring is its help."""
    module = importlib.import_module(f"elmo_fast.cli.{COMMANDS[command][0]}")
    word = command.split()[-1].replace("-", "_")
    return getattr(module, f"{word}_options", lambda parser: None), getattr(module, f"run_{word}")


def parser_of(command: str) -> Parser:
    """Return the parser of a command, or of a group of commands."""
    if command in GROUPS:
        return Parser(GROUPS[command])
    options, run = functions_of(command)
    parser = Parser(inspect.getdoc(run))
    parser.common()
    options(parser)
    return parser


def parsers(chosen: str | None = None) -> dict[str, Parser]:
    """Return the parser of `elmo-fast`, named "", and below it of the chosen command, by name: "embed", "plot senses".

    chosen: None is all commands, whose modules are then imported.
    """
    top = Parser(
        prog="elmo-fast",
        description="Run, train and evaluate ELMo. `elmo-fast COMMAND --help` lists the options of a command; they "
        "may be written with hyphens or underscores (--weight-file, --weight_file).",
    )
    top.add_argument("--version", action="version", version=f"elmo-fast {__version__}")
    parsers_by_name, menus = {"": top}, {"": top.add_subcommands(dest="command", metavar="COMMAND")}
    for name, (_, sentence) in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if chosen in (None, name.split()[0]):
            parser = parsers_by_name[name] = parser_of(name)
        elif group:
            continue
        else:
            parser = Parser()  # the command is only listed
        aliases = [alias for alias, command in ALIASES.items() if command == name]
        menus[group].add_subcommand(word, parser, help=sentence, aliases=aliases)
        parser.prog = f"elmo-fast {name}"
        if name in GROUPS and name in parsers_by_name:
            menus[name] = parser.add_subcommands(dest="kind", metavar="KIND")
    return parsers_by_name


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


def with_output_last(words: Sequence[str]) -> list[str]:
    """Return the words with the value of `--output` at the end, where these commands have OUTPUT, as in AllenNLP."""
    others, outputs, rest = list[str](), list[str](), iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--output" and (equals or (value := next(rest, ""))):
            outputs.append(value)
        else:
            others.append(word)
    return others + outputs


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
    print(f"elmo-fast: warning: {printable(str(message))}", file=sys.stderr)


def _is_run(word: str) -> bool:
    """Return whether a word after `plot` is the folder of a run, and no option, kind of picture, or typo of one."""
    kinds = [name.removeprefix("plot ") for name in COMMANDS if name.startswith("plot ")]
    return not word.startswith("-") and word not in kinds and (os.path.exists(word) or not did_you_mean(word, kinds))


def run_command(name: str, argv: Sequence[str], called: str) -> int:
    """Parse the words after a command's name and run it; an error names the option that it is about.

    called: the name that was typed, which may be an alias. A ShortageError says what to lower if memory runs out.
    """
    from elmo_fast.cli._common import set_up_logging

    arguments: Any = None
    try:
        known = parsers(name)
        if name == "plot" and argv and _is_run(argv[0]):
            argv = ["curves", *argv]  # `elmo-fast plot RUN`
        begin = 1 if name in GROUPS else 0
        words = normalised(argv[begin:])
        if name in ("embed", "merge"):
            words = with_output_last(words)
        arguments = known[""].parse_args([name, *argv[:begin], *words])[name]
        if name in GROUPS:
            name, arguments = f"{name} {arguments.kind}", arguments[arguments.kind]
        arguments.called = called
        set_up_logging(arguments)
        warnings.showwarning = lambda message, *more: show_warning(known[name].in_options(str(message)), *more)
        known[name].check_outputs(arguments)
        with known[name].standard_streams(arguments):
            return int(functions_of(name)[1](arguments) or 0)
    except Exception as error:
        if gpu_shortage(error) is not None or (is_shortage(error) and not isinstance(error, ElmoFastError)):
            raise shortage_error(error, vars(arguments or argparse.Namespace())) from error
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
    let_waiting_threads_sleep()  # before any command imports torch
    name = words[0].replace("_", "-") if words else ""
    name = ALIASES.get(name, name)
    if name == "help":
        return status_of([*words[1:2], "--help"])
    if name not in COMMANDS or " " in name:
        completes = name.startswith("--print-completion")  # of the options of all commands
        top = parsers(None if completes else "")[""]
        top.parse_args(normalised(words)) if words else top.print_help()
        return USER_ERROR
    try:
        with terminated_as_exit(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            return run_command(name, words[1:], words[0])
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
