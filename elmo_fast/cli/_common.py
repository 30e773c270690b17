"""What the commands share: what the common options do, the model that the options name, progress."""

import contextlib
import dataclasses
import importlib.metadata
import io
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

from elmo_fast._runtime.devices import check_int8_device, device_called, device_named
from elmo_fast._runtime.threads import check_threads, unhindered_threads
from elmo_fast.cli._parser import Command, Model, ModelNames, Reading
from elmo_fast.errors import ElmoFastError, printable


def arguments(options: Any, *names: str) -> dict[str, Any]:
    """Return these options by name, for a function that calls its arguments the same."""
    return {name: getattr(options, name) for name in names}


def logger() -> logging.Logger:
    """Return the logger of the command line: progress, on stderr, which -q hides. Warnings are Python's, and stay."""
    return logging.getLogger("elmo_fast")


def set_up_logging(options: Command) -> None:
    """Apply -q."""
    log = logger()
    log.setLevel(logging.WARNING if options.quiet else logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    # Lines may quote files and servers.
    handler.format = lambda record: printable(record.getMessage())  # type: ignore[method-assign]
    log.handlers[:] = [handler]


def choose_device(options: Any, precision: str | None = None) -> str:
    """Return the name of the device, also set as the option: of "auto" a GPU, if torch sees one that can run it.

    A line says which, where there is a choice. precision: of what runs, if no option says. Raises ElmoFastError for a
    GPU that cannot run it.
    """
    name: str = getattr(options, "device", "cpu")
    if name != "auto":
        if getattr(options, "precision", None) == "int8":  # that of a task is checked where it is read
            check_int8_device("int8", device_called(name, "--device"), "auto")
        return name
    import torch

    options.device, line = "cpu", "cpu    --device cpu, as int8 runs on CPUs only"
    if torch.cuda.is_available():
        if (precision or getattr(options, "precision", "float32")) != "int8":
            options.device = "cuda"
            line = "gpu    --device cuda, as torch sees a GPU; --device cpu computes on the CPU"
        if os.environ.get("RANK", "0") == "0":
            logger().info(line)
    return str(options.device)


def set_up(options: Any, *, trained: bool = False, precision: str | None = None) -> Any:
    """Apply the common options and return the torch device; ElmoFastError if this machine does not have it.

    trained: that a trained model is run; without --threads it gets one thread for each processor that other programs
    leave free, which a line says. Training keeps the number that it started with. precision: as in choose_device.
    """
    import torch

    if options.threads is not None:
        check_threads(options.threads, "--threads")
        torch.set_num_threads(options.threads)
    elif trained:
        count, why = unhindered_threads(torch.get_num_threads())
        torch.set_num_threads(count)
        unit = "thread" if count == 1 else "threads"
        logger().info("cpu    using %d %s: %s (--threads N sets the number)", count, unit, why)
    torch.manual_seed(getattr(options, "seed", 0))
    name = choose_device(options, precision)
    device = device_named(name, "--device")
    if device.type not in ("cpu", "cuda"):
        raise ElmoFastError(f"--device must be a CPU or CUDA device; got {name!r}")
    return device


def resolve_model(options: ModelNames, default: str | None = None) -> None:
    """Set --model to the folder with the model; print it if it is a checkpoint of an unfinished run.

    default: the model that comes with the package which is taken, and named in a line, if no option names one. Raises
    ElmoFastError unless the options name one model.
    """
    from elmo_fast.checkpoints import model_files, pretrained_folder

    if default is not None and not names_model(options):
        options.model = default
        logger().info("model  %s, which comes with elmo_fast; --model names another", default)
    model, pair = options.model, (options.options_file, options.weight_file)
    if (model is None) == (pair == (None, None)) or (model is None and None in pair):
        raise ElmoFastError(
            "name a model with --model FOLDER (or an archive of it), or with --options_file and --weight_file; "
            f"got --model {model}, --options_file {pair[0]}, --weight_file {pair[1]}"
        )
    if model is None or "://" in model:  # an address is refused where a model is read
        return
    folder = os.fspath(model_files(pretrained_folder(model, from_hub=False))[0].parent)
    if os.path.isdir(model) and not os.path.samefile(folder, model):
        logger().info("model  %s, the newest checkpoint of an unfinished run", folder)
    if os.path.isdir(model) or not os.path.exists(model):  # an archive keeps its name
        options.model = folder


def names_model(options: ModelNames) -> bool:
    """Return whether any of the options that name a model is given."""
    return any(value is not None for value in (options.model, options.options_file, options.weight_file))


def load_state(options: ModelNames) -> tuple[Any, Any]:
    """Load the state and the options of the model that the options name."""
    from elmo_fast.checkpoints import load_checkpoint

    softmax = getattr(options, "softmax_file", None)
    return load_checkpoint(options.model, options.options_file, options.weight_file, softmax, prefix=options.prefix)


def tokenizer_of(options: Any) -> str | None:
    """Return the tokenizer that --tokenizer names, or the one stored with the model; None splits at white space."""
    from elmo_fast.checkpoints import pretrained_folder, read_options, stored_tokenizer

    named: str | None = options.tokenizer
    if named is None and options.options_file is not None:
        return read_options(options.options_file).tokenizer
    return named or stored_tokenizer(pretrained_folder(options.model))


def reading(options: Reading, tokenizer: str | None, text: str, queries: str | None = None) -> dict[str, Any]:
    """Return the arguments of `opened_source` after the path of a text, from the options and what splits the text.

    Raises ElmoFastError for --column if neither the text nor the file of queries is a table.
    """
    from elmo_fast.text.sources import check_tables, files_to_read

    if options.column != "text":
        files = files_to_read(text, options.format_in) + (files_to_read(queries) if queries else [])
        check_tables(options.column, files)
    return {**arguments(options, "format_in", "column", "split"), "tokenizer": tokenizer}


def load_embedder(options: Model, *, stateful: bool = False) -> Any:
    """Load the ElmoEmbedder of the model that the options name, on --device; apply the common options."""
    device = set_up(options, trained=True)
    from elmo_fast.embed.embedder import ElmoEmbedder

    embedder = ElmoEmbedder(
        options.options_file or str(options.model),
        options.weight_file,
        cuda_device=-1 if device.type == "cpu" else device.index or 0,
        stateful=stateful,
        precision=options.precision,
        prefix=options.prefix,
        cuda_graphs=True,
    )
    if (tokenizer := getattr(options, "tokenizer", None)) is not None:
        bilm = embedder.elmo_bilm
        bilm.options = dataclasses.replace(bilm.options, tokenizer=tokenizer)
    return embedder


@contextlib.contextmanager
def printed_text(path: str) -> Iterator[str]:
    """Yield a path to write text to: `path`, or with "-" a file whose text is printed when the block ends."""
    if path != "-":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmo-fast-") as folder:
        yield (file := os.path.join(folder, "text"))
        with open(file, encoding="utf-8", newline="") as text:
            shutil.copyfileobj(text, sys.stdout)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def version_of(package: str) -> str:
    """Return the version of an installed package, or "absent"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


class Progress(tqdm):
    """Progress of a long command: tqdm's bar on a terminal, a line every ten seconds into a file or a pipe.

    --file_friendly_logging: lines on a terminal too, and one at the end of a command that was faster; leave: whether
    the bar stays on the terminal when it is complete. With -q these are lines that nobody sees.
    """

    between_lines = 10.0  # seconds

    def __init__(self, options: Any, total: int = 0, unit: str = "tokens", *, leave: bool = True) -> None:
        self.asked = getattr(options, "file_friendly_logging", False)
        self.lines = self.asked or options.quiet or not sys.stderr.isatty()
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
        )

    def add(self, count: int) -> None:
        """Count more as done."""
        self.reach(self.n + count, self.total or 0)

    def reach(self, done: int, total: int) -> None:
        """Set what is done, and of what."""
        if done < self.n:  # of something else
            self.reset()
        self.total = total
        self.update(done - self.n)
        is_long = self.asked or self.seconds >= self.between_lines
        if self.lines and is_long and done == total != self.last_print_n:
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
