"""The console entry: finds the command, runs it, and turns user errors into one sentence and an exit status."""

import contextlib
import dataclasses
import importlib
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jsonargparse

from elmo_fast import __version__
from elmo_fast._runtime.memory import is_shortage, shortage_error
from elmo_fast._runtime.threads import let_waiting_threads_sleep
from elmo_fast.cli._parser import ConfigFile, Parser
from elmo_fast.errors import ElmoFastError, did_you_mean, printable, sentence_of

# Command -> its module below elmo_fast.cli, and what it does. Groups of commands have no module.
COMMANDS = {
    "vocab": ("pretrain", "count the words of a corpus and write a vocabulary file"),
    "prepare": ("pretrain", "convert text files to the numbers that pretraining reads"),
    "pretrain": ("pretrain", "train a bidirectional language model on your own text"),
    "eval": ("eval", "measure the perplexity of held-out text under a pretrained model"),
    "fill": ("eval", "find the words that a pretrained model expects at the gaps of a sentence, or sample sentences"),
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
        "embed",
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
        "embed",
        "write the context-free vector of each word of a vocabulary (bilm-tf's dump_token_embeddings)",
    ),
    "check": ("check", "compare every kernel of a GPU with plain torch"),
    "info": ("check", "show versions, CPU, and which kernels run here and why not the others"),
}
# Group of commands -> its description; "" are all.
GROUPS = {
    "": "Run, train and evaluate ELMo. `elmo-fast COMMAND --help` lists the options of a command; they may be written "
    "with hyphens or underscores (--weight-file, --weight_file).",
    "plot": "Draw pictures. `elmo-fast plot RUN` is `elmo-fast plot curves RUN`.",
    "task": "Train, score and use a tagger (a label per word) or a classifier (a label per sentence).",
    "static": "Context-free word vectors, for comparison with ELMo. An input's format is detected from its content, an "
    "output's from its name: .bin (word2vec binary), .txt or .vec (word2vec text), .safetensors (our own, fastest); "
    "the first three also with .gz.",
}
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


def parser_of(command: str) -> Parser:
    """Return the parser of a command, from its function: its docstring and the dataclass that it takes."""
    run = function_of(command)
    parser = Parser(inspect.getdoc(run), prog=f"elmo-fast {command}")
    configs = "YAML, JSON or TOML file of these options; options on the command line win"
    parser.add_argument("--config", action=ConfigFile, help=configs)
    parser._option_string_actions["--print_config"].help = "print the options in force, as YAML, and exit"
    inspect.signature(run).parameters["options"].annotation.add_to(parser)
    return parser


def function_of(command: str) -> Callable[[Any], int | None]:
    """Return run_WORD, which runs a command."""
    module = importlib.import_module(f"elmo_fast.cli.{COMMANDS[command][0]}")
    run: Callable[[Any], int | None] = getattr(module, f"run_{command.split()[-1].replace('-', '_')}")
    return run


def parsers(options: bool = True) -> dict[str, Parser]:
    """Return the parser of `elmo-fast`, named "", and below it of every command, by name: "embed", "plot senses".

    options: whether those of commands have theirs, which takes half a second.
    """
    names = ["", *COMMANDS]
    known = {name: parser_of(name) if options and name not in GROUPS else Parser(GROUPS.get(name)) for name in names}
    known[""].add_argument("--version", action="version", version=f"elmo-fast {__version__}")
    for group in GROUPS:
        known[group].prog = f"elmo-fast {group}".strip()
        dest = "kind" if group else "command"
        commands = known[group].add_subcommands(dest=dest, metavar=dest.upper())
        for name, (_, sentence) in COMMANDS.items():
            if name.rpartition(" ")[0] == group:
                commands.add_subcommand(name.split()[-1], known[name], help=sentence)
                known[name].prog = f"elmo-fast {name}"
    return known


def normalised(words: Sequence[str], *, output_last: bool = False) -> list[str]:
    """Return the words with the hyphens in option names changed to underscores, up to a bare `--`, and --config first.

    jsonargparse lets what comes later win: so what is typed stands above a file. output_last: whether the value of
    --output stands for the last positional argument, as in AllenNLP
    """
    end = words.index("--") if "--" in words else len(words)
    configs, others, outputs, rest = list[str](), list[str](), list[str](), iter(words[:end])
    for word in rest:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        if name == "--config":
            configs += [name, value if equals else next(rest, "")]
        elif name == "--output" and output_last and (equals or (value := next(rest, ""))):
            outputs.append(value)
        else:
            others.append(name + equals + value)
    return [*configs, *others, *outputs, *words[end:]]


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the words begin with, one that exists or not, and the words after it."""
    name, rest = words[0].replace("_", "-"), list(words[1:])
    if name not in GROUPS or not rest or rest[0].startswith("-"):
        return name, rest
    kinds = [each.removeprefix("plot ") for each in COMMANDS if each.startswith("plot ")]
    if name == "plot" and rest[0] not in kinds and (os.path.exists(rest[0]) or not did_you_mean(rest[0], kinds)):
        return "plot curves", rest  # `elmo-fast plot RUN`
    return f"{name} {rest[0]}", rest[1:]


def run_command(name: str, words: Sequence[str]) -> int:
    """Parse the words after a command's name and run it; an error names the option that it is about.

    A ShortageError says what to lower if memory runs out.
    """
    from elmo_fast.cli._common import set_up_logging

    values: dict[str, Any] = {}
    parser, run = parser_of(name), function_of(name)
    kind = inspect.signature(run).parameters["options"].annotation

    def show_warning(message: Any, *_: Any, **__: Any) -> None:
        """Print a warning as one line, without the source line that Python adds."""
        print(f"elmo-fast: warning: {printable(parser.in_options(str(message)))}", file=sys.stderr)

    before = None
    with contextlib.suppress(ValueError):  # not the main thread: signals are handled elsewhere
        # It unwinds the stack, so that temporary files are removed.
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            values = parser.values(normalised(words, output_last=name in ("embed", "merge")))
            options = kind(**{field.name: values[field.name] for field in dataclasses.fields(kind) if field.init})
            set_up_logging(options)
            options.settings = {name: values[name] for name in parser.configured}
            parser.check_outputs(values)
            return run(options) or 0
        except Exception as error:
            if is_shortage(error) and not isinstance(error, ElmoFastError):
                raise shortage_error(error, values) from error
            if isinstance(error, BrokenPipeError) or not isinstance(error, ElmoFastError | OSError):
                raise
            raise ElmoFastError(parser.about(error, values)) from error
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)


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
    if not words:
        parsers(options=False)[""].print_help()
        return USER_ERROR
    if words[0] == "help":
        return status_of([*words[1:], "--help"])
    name, rest = command_of(words)
    if name.startswith("-") or name in GROUPS:
        jsonargparse.set_parsing_settings(add_print_completion_argument=True)  # of all options, by shtab
        group, of_group = (name, rest) if name in GROUPS else ("", normalised(words))
        parser = parsers(options=name.startswith("--print"))[group]
        parser.parse_args(of_group)
        parser.error("a command comes before its options")
    try:
        if name not in COMMANDS:
            name, _, word = name.rpartition(" ")
            known = [each.removeprefix(f"{name} ") for each in COMMANDS if each.rpartition(" ")[0] == name]
            raise ElmoFastError(
                f"unknown command {word!r}{did_you_mean(word, known) or '; commands: ' + ', '.join(known)}"
            )
        return run_command(name, rest)
    except ElmoFastError as error:
        print(f"{f'elmo-fast {name}'.strip()}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(f"\nelmo-fast {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
