"""What the commands share: what the common options do, the model that the options name, progress."""

import dataclasses
import io
import logging
import os
import sys
import time
from typing import Any

from tqdm import tqdm

from elmo_fast.cli._parser import MODEL_NAMES
from elmo_fast.devices import check_int8_device, device_called, device_named
from elmo_fast.errors import ElmoFastError, printable
from elmo_fast.threads import check_threads, unhindered_threads


def values_of(arguments: Any, *kinds: Any) -> dict[str, Any]:
    """Return the options that are fields of these configurations (`Parser.fields`), by name."""
    values = {}
    for field in (field for kind in kinds for field in dataclasses.fields(kind)):
        value = getattr(arguments, field.name)
        values[field.name] = tuple(value) if isinstance(field.default, tuple) else value
    return values


def named(arguments: Any, *names: str) -> dict[str, Any]:
    """Return these options by name, for a function that calls its arguments the same."""
    return {name: getattr(arguments, name) for name in names}


def logger() -> logging.Logger:
    """Return the logger of the command line: progress, on stderr, which -q hides. Warnings are Python's, and stay."""
    return logging.getLogger("elmo_fast")


class PrintableLines(logging.Formatter):
    """Log lines may quote files and servers."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line as `printable` text."""
        return printable(super().format(record))


def set_up_logging(arguments: Any) -> None:
    """Apply -q."""
    log = logger()
    log.setLevel(logging.WARNING if arguments.quiet else logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableLines("%(message)s"))
    log.handlers[:] = [handler]


def choose_device(arguments: Any, precision: str | None = None) -> str:
    """Return the name of the device, also set as the option: of "auto" a GPU, if torch sees one that can run it.

    A line says which, where there is a choice. precision: of what runs, if no option says. Raises ElmoFastError for a
    GPU that cannot run it.
    """
    name: str = getattr(arguments, "device", "cpu")
    precision = precision or getattr(arguments, "precision", "float32")
    if name == "auto":
        import torch

        name = arguments.device = "cpu"
        if torch.cuda.is_available():
            line = "gpu    --device cuda, as torch sees a GPU; --device cpu computes on the CPU"
            if precision == "int8":
                line = "cpu    --device cpu, as int8 runs on CPUs only"
            else:
                name = arguments.device = "cuda"
            if os.environ.get("RANK", "0") == "0":
                logger().info(line)
    elif precision == "int8":
        check_int8_device(precision, device_called(name, "--device"), getattr(arguments, "backend", "auto"))
    return name


def set_up(arguments: Any, *, trained: bool = False, precision: str | None = None) -> Any:
    """Apply the common options and return the torch device; ElmoFastError if this machine does not have it.

    trained: that a trained model is run; without --threads it gets one thread for each processor that other programs
    leave free, which a line says. Training keeps the number that it started with. precision: as in choose_device.
    """
    import torch

    if arguments.threads is not None:
        check_threads(arguments.threads, "--threads")
        torch.set_num_threads(arguments.threads)
    elif trained:
        count, why = unhindered_threads(torch.get_num_threads())
        torch.set_num_threads(count)
        unit = "thread" if count == 1 else "threads"
        logger().info("cpu    using %d %s: %s (--threads N sets the number)", count, unit, why)
    torch.manual_seed(getattr(arguments, "seed", 0))
    name = choose_device(arguments, precision)
    device = device_named(name, "--device")
    if device.type not in ("cpu", "cuda"):
        raise ElmoFastError(f"--device must be a CPU or CUDA device; got {name!r}")
    return device


def resolve_model(arguments: Any, default: str | None = None) -> None:
    """Set --model to the folder with the model; print it if it is a checkpoint of an unfinished run.

    default: the model that comes with the package which is taken, and named in a line, if no option names one. Raises
    ElmoFastError unless the options name one model, and files that exist.
    """
    from elmo_fast.checkpoints import model_files, pretrained_folder

    if default is not None and not names_model(arguments):
        arguments.model = default
        logger().info("model  %s, which comes with elmo_fast; --model names another", default)
    model, pair = arguments.model, (arguments.options_file, arguments.weight_file)
    softmax = getattr(arguments, "softmax_file", None)
    if (model is None) == (pair == (None, None)) or (model is None and None in pair):
        raise ElmoFastError(
            "name a model with --model FOLDER (or an archive of it), or with --options_file and --weight_file; "
            f"got --model {model}, --options_file {pair[0]}, --weight_file {pair[1]}"
        )
    if model is not None and softmax is not None:
        raise ElmoFastError(
            f"--softmax_file needs --options_file and --weight_file; a folder (--model {model}) has its own, named "
            "softmax.hdf5"
        )
    for name, path in {"options_file": pair[0], "weight_file": pair[1], "softmax_file": softmax}.items():
        if path is not None and "://" not in path and not os.path.exists(path):
            raise ElmoFastError(
                f"--{name} must be a file; there is no {path!r}: check the spelling and the current folder"
            )
    if model is None or "://" in model:  # an address is refused where a model is read
        return
    folder = os.fspath(model_files(pretrained_folder(model, from_hub=False))[0].parent)
    if os.path.isdir(model) and not os.path.samefile(folder, model):
        logger().info("model  %s, the newest checkpoint of an unfinished run", folder)
    if os.path.isdir(model) or not os.path.exists(model):  # an archive keeps its name
        arguments.model = folder


def names_model(arguments: Any) -> bool:
    """Return whether any of the options that name a model is given."""
    return any(getattr(arguments, name) is not None for name in MODEL_NAMES)


def load_state(arguments: Any) -> tuple[Any, Any]:
    """Load the state and the options of the model that the options name."""
    from elmo_fast.checkpoints import load_checkpoint

    files = *named(arguments, *MODEL_NAMES[:3]).values(), getattr(arguments, "softmax_file", None)
    return load_checkpoint(*files, prefix=arguments.prefix)


def tokenizer_of(arguments: Any) -> str | None:
    """Return the tokenizer that --tokenizer names, or the one stored with the model; None splits at white space."""
    from elmo_fast.checkpoints import pretrained_folder, read_options, stored_tokenizer

    if arguments.tokenizer is not None:
        return arguments.tokenizer
    if arguments.options_file is not None:
        return read_options(arguments.options_file).tokenizer
    return stored_tokenizer(pretrained_folder(arguments.model))


def reading(arguments: Any, tokenizer: str | None) -> dict[str, Any]:
    """Return the arguments of `opened_source` after the path, from the options READING and what splits the text."""
    return {**named(arguments, "format_in", "column", "split"), "tokenizer": tokenizer}


def load_embedder(arguments: Any, *, stateful: bool = False) -> Any:
    """Load the ElmoEmbedder of the model that the options name, on --device; apply the common options."""
    device = set_up(arguments, trained=True)
    from elmo_fast.embed.embedder import ElmoEmbedder

    embedder = ElmoEmbedder(
        arguments.options_file or arguments.model,
        arguments.weight_file,
        cuda_device=-1 if device.type == "cpu" else device.index or 0,
        stateful=stateful,
        precision=arguments.precision,
        prefix=arguments.prefix,
        cuda_graphs=True,
    )
    if getattr(arguments, "tokenizer", None) is not None:
        bilm = embedder.elmo_bilm
        bilm.options = dataclasses.replace(bilm.options, tokenizer=arguments.tokenizer)
    return embedder


def layer_of(text: str) -> str | int:
    """Return a layer from an option: a number if it is one, else a name."""
    return int(text) if text.isdecimal() else text


class Progress(tqdm):
    """Progress of a long command: tqdm's bar on a terminal, a line every ten seconds into a file or a pipe.

    --file_friendly_logging: lines on a terminal too, and one at the end of a command that was faster; done counts also
    where nothing is shown; leave: whether the bar stays on the terminal when it is complete.
    """

    done = 0
    between_lines = 10.0  # seconds

    def __init__(self, arguments: Any, total: int = 0, unit: str = "tokens", *, leave: bool = True) -> None:
        self.asked = getattr(arguments, "file_friendly_logging", False)
        self.lines = self.asked or not sys.stderr.isatty()
        self.began = time.monotonic()
        super().__init__(
            total=total or None,
            unit=f" {unit}",
            unit_scale=True,
            leave=leave and not self.lines,
            mininterval=self.between_lines if self.lines else 0.1,
            bar_format="{n_fmt} of {total_fmt}{unit} ({percentage:.0f}%), {rate_fmt}, {remaining} left{postfix}"
            if self.lines
            else None,
            dynamic_ncols=True,
            file=io.StringIO() if self.lines else None,
            disable=arguments.quiet,
        )

    def add(self, count: int) -> None:
        """Count more as done."""
        self.reach(self.done + count, self.total or 0)

    def reach(self, done: int, total: int) -> None:
        """Set what is done, and of what."""
        more, self.done, self.total = done - self.done, done, total
        if more < 0:  # of something else
            self.reset(total)
            more = done
        self.update(more)
        is_long = self.asked or self.seconds >= self.between_lines
        if self.lines and is_long and not self.disable and done == total != self.last_print_n:
            self.refresh()

    def read(self, done: int, total: int, words: int) -> None:
        """Set how many bytes of a text are read, and how many words they were."""
        self.set_postfix_str(f"{words / max(self.seconds, 1e-9):,.0f} words/s", refresh=False)
        self.reach(done, total)

    def say(self, line: str) -> None:
        """Log a line above the bar."""
        self.clear()
        logger().info("%s", line)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Show the bar, or log its line."""
        if not self.lines:
            super().display(msg, pos)
        elif self.n and msg is None:
            logger().info("%s", self)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float:
        """Units per second since the start."""
        return self.done / max(self.seconds, 1e-9)
