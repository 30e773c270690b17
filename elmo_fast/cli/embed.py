"""`elmo-fast embed`: vectors of every token of a text file, in the form and the file layout of `allennlp elmo`."""

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from jsonargparse import ActionYesNo, Namespace

from elmo_fast import cluster
from elmo_fast.cli import _common, check
from elmo_fast.cli._parser import COMPUTING, MODEL_OPTIONS, READING, TEXT, Parser
from elmo_fast.devices import gpu_numbered
from elmo_fast.embed.token_files import NAMED, STANDARD_OUTPUT, Format, format_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Pool
from elmo_fast.process import Rank, rank_of_srun, rank_of_torchrun
from elmo_fast.progress import duration
from elmo_fast.text import Source, opened_source, survey
from elmo_fast.text.sources import Column
from elmo_fast.text.tokenizers import LINES_LOOKED_AT, RAW_TEXT_ADVICE, first_raw_line

LAYERS = ("all", "top", "average")
DTYPES = {"f32": "float32", "f16": "float16"}
# AllenNLP's and bilm-tf's names of `embed`: whoever types them expects the old model and numbers.
OLD_NAMES = ("elmo", "dump")


def embed_options(parser: Parser) -> None:
    parser.shared(*COMPUTING)
    parser.add_argument("input_file", type=str, metavar="INPUT", help=f"{TEXT}; or as --format_in says")
    parser.reads("input_file", standard_input="streamed")
    parser.add_argument(
        "output_file",
        type=str,
        metavar="OUTPUT",
        help="file to write, also as --output OUTPUT; - prints JSON lines on the standard output; with several "
        "processes: folder to write",
    )
    parser.writes("output_file", standard_output="streamed")
    group = parser.add_mutually_exclusive_group()
    which = "which layers: all, [layers, tokens, 2D] per sentence; the top one, or their average, [tokens, 2D]"
    group.add_argument("--layers", choices=LAYERS, default="all", help=which)
    for layers in LAYERS:
        same: dict[str, Any] = {"action": "store_const", "const": layers, "dest": "layers", "default": "all"}
        group.add_argument(f"--{layers}", help=f"same as --layers {layers}", **same)
    parser.shared(*MODEL_OPTIONS, *READING)
    parser.option(
        "format",
        Format,
        "format of OUTPUT; hdf5: one dataset per sentence, as AllenNLP; parquet: one row per sentence, with "
        "the other columns of a table (not with several processes); jsonl: one JSON "
        "object per sentence; the others: embeddings [tokens, layers, 2D] and offsets (default: by the ending of "
        "OUTPUT: .hdf5 or .h5, .npz, .safetensors, .parquet, .jsonl; without one: hdf5)",
    )
    parser.option(
        "pool",
        Pool,
        "write one vector per line (with --layers all, one per layer): the mean or max of its tokens, or first_last, "
        "the forward half of the last one and the backward half of the first; hdf5, safetensors and npz then have "
        "embeddings [lines, layers, 2D] or, of one layer, [lines, 2D]",
    )
    parser.option("dtype", Literal["f32", "f16"], "numbers in OUTPUT", "f32")
    parser.shared("batch_size", "max_tokens")
    parser.add_argument(
        "--stateful",
        action=ActionYesNo(no_prefix="no_"),
        default=False,
        help="carry the LSTM state from batch to batch: AllenNLP's vectors, if --batch_size (there 64) and the order "
        "of the lines are as then; without it the same sentence always has the same vectors, and several processes can "
        "share the work",
    )
    parser.option(
        "forget_sentences", None, "leave out the sentences: with hdf5 sentence_to_index, with safetensors names"
    )
    parser.option("use_sentence_keys", None, "with hdf5: name the datasets by their sentences, not by their numbers")
    parser.option(
        "shard",
        str,
        "i/N, from 0/N: this is process i of N that embed INPUT into the folder OUTPUT (torchrun and srun set this); "
        "0/1: one process writes a folder, and can resume; on one machine, also set --threads",
    )
    parser.shared("ray")
    parser.option(
        "part_lines",
        int,
        "lines per part, a multiple of 16 times --batch_size (default: about eight parts per process, each at most 256 "
        "times --batch_size)",
    )
    parser.shared("file_friendly_logging")
    parser.option("cuda_device", int, "number of the GPU, or -1 for the CPU: --device as AllenNLP has it")
    parser.option("vocab_path", str, "ignored, as by AllenNLP")


def run_embed(arguments: Any) -> None:
    """Write the vectors of every token of INPUT to OUTPUT.

    The file appears only when it is complete. Several processes share the work if torchrun or srun starts them, or if
    each gets --shard. OUTPUT is then a folder, on a disk that all of them see, with one file per part of the text;
    process i writes the parts i, i + N, ... To resume, run the same command again: existing parts are kept. `elmo-fast
    merge` joins the parts into one file; in Python, elmo_fast.ElmoVectors opens the folder, or a file of --format
    safetensors.
    """
    if arguments.cuda_device is not None:
        if arguments.device != "auto":
            raise ElmoFastError("--device and --cuda_device name the same thing; give one of them")
        arguments.device = str(gpu_numbered(arguments.cuda_device, "--cuda_device"))
    if arguments.called in OLD_NAMES and not _common.names_model(arguments):
        raise ElmoFastError(
            f"`{arguments.called}` needs --model, or --options_file and --weight_file: give --model original, "
            "AllenNLP's default (a download of about 374 MB), or --model mini, which comes with elmo_fast"
        )
    _common.choose_device(arguments)
    if arguments.ray is not None:
        _embed_on_cluster(arguments)
        return
    process = rank_of(arguments.shard)
    if process is None:
        arguments.format = format_of(arguments.output_file, arguments.format)
    arguments.format = arguments.format or "hdf5"  # of a folder: what merging writes
    if arguments.use_sentence_keys and arguments.format != "hdf5":
        raise ElmoFastError(f"--use_sentence_keys needs --format hdf5; got --format {arguments.format}")
    if process is None and arguments.part_lines is not None:
        raise ElmoFastError("--part_lines needs --shard, torchrun or srun; one process alone writes one file")
    if process is not None and arguments.output_file == STANDARD_OUTPUT:
        raise ElmoFastError("several processes write a folder; OUTPUT cannot be the standard output (-)")
    if process is not None and arguments.pool is not None:
        raise ElmoFastError("--pool writes one file; leave out --shard, torchrun and srun")
    if process is not None and arguments.input_file == "-":
        raise ElmoFastError("standard input cannot be shared among processes; give a file that all of them can read")
    _common.resolve_model(arguments, default="mini")
    tokenizer = _common.tokenizer_of(arguments)
    with opened_source(arguments.input_file, **_common.reading(arguments, tokenizer)) as source:
        if process is None:
            _embed_alone(arguments, source, tokenizer)
        else:
            _embed_parts(arguments, source, process)


def _embed_alone(arguments: Any, source: Source, tokenizer: str | None) -> None:
    hdf5 = arguments.format == "hdf5"
    keys = arguments.use_sentence_keys or (hdf5 and source.keyed)
    keeps = arguments.format in NAMED and not arguments.forget_sentences
    text = survey(source, keep_lines=keeps, as_keys=keys)
    if tokenizer is None and not source.keyed:
        line = first_raw_line(text.lines or [], text.lengths[:LINES_LOOKED_AT].tolist())
        if line is not None:
            warnings.warn(f"{source.place(line)} {RAW_TEXT_ADVICE}", stacklevel=1)
    _warn_of_other_numbers(arguments, len(text))
    embedder = _common.load_embedder(arguments, stateful=arguments.stateful)
    check.remind(arguments.device)
    with _common.Progress(arguments, int(text.lengths.sum())) as progress:
        embedder.embed_file(
            text,
            arguments.output_file,
            **_settings(arguments) | {"use_sentence_keys": keys},
            pool=arguments.pool,
            progress=progress.reach,
        )
    summary = (
        f"{len(text)} sentences, {progress.done} tokens in {duration(progress.seconds)} ({int(progress.rate)} tok/s)"
    )
    name = "standard output" if arguments.output_file == STANDARD_OUTPUT else arguments.output_file
    _common.logger().info("%s: %s", name, summary)


def _warn_of_other_numbers(arguments: Any, sentences: int) -> None:
    """Warn under an old name if the state that AllenNLP carries to the second batch is missing."""
    from elmo_fast.embed.sentence_vectors import BATCH_SIZE  # imports torch

    first = arguments.batch_size or BATCH_SIZE
    if arguments.called in OLD_NAMES and not arguments.stateful and sentences > first:
        warnings.warn(
            f"lines after the first {first} get other vectors than in AllenNLP, which carries the LSTM's state from "
            "batch to batch: --stateful does too; `elmo-fast embed` is this command without the warning",
            stacklevel=1,
        )


def _embed_parts(arguments: Any, source: Source, process: Rank) -> None:
    """Write this process's parts; the first process alone shows its progress."""
    if arguments.device == "cuda":  # the GPU of this process's number on its machine, round after round
        import torch

        arguments.device = f"cuda:{process.local_rank % max(1, torch.cuda.device_count())}"
    embedder = _common.load_embedder(arguments, stateful=arguments.stateful)
    if process.rank == 0:
        check.remind(arguments.device)
        if arguments.format == "parquet" and isinstance(source, Column):
            warnings.warn(
                f"{arguments.output_file}: parts do not hold the other columns of {source.name}; one process that "
                "writes a file does",
                stacklevel=1,
            )
    from elmo_fast.embed.parts import Settings, embed_parts

    arguments.quiet |= process.rank > 0
    with _common.Progress(arguments) as progress:
        written = embed_parts(
            embedder,
            source,
            arguments.output_file,
            (process.rank, process.world_size),
            Settings(**_settings(arguments), part_sentences=arguments.part_lines),
            progress=progress.reach,
            say=_common.logger().info,
        )
    summary = f"{written.parts} of {written.all_parts} parts, {written.tokens} tokens in {duration(progress.seconds)}"
    _common.logger().info("%s: process %d of %d wrote %s", arguments.output_file, *process[:2], summary)


def _embed_on_cluster(arguments: Any) -> None:
    """Run `--shard i/N` as task i of the cluster, so that a task that runs again keeps the existing parts."""
    if arguments.shard is not None:
        raise ElmoFastError("--ray divides the work itself; leave out --shard")
    threads, gpu = arguments.threads or 1, arguments.device.startswith("cuda")
    with cluster.connected(arguments.ray, "embed --ray") as ray:
        count = cluster.places(ray, threads, gpu)
        common = {**vars(arguments), "ray": None, "threads": threads, "quiet": True}
        tasks = [Namespace(**{**common, "shard": f"{number}/{count}"}) for number in range(count)]
        for number, _ in enumerate(cluster.in_turn(ray, run_embed, tasks, threads, gpu), 1):
            _common.logger().info("%s: %d of %d tasks have written their parts", arguments.output_file, number, count)


def _settings(arguments: Any) -> dict[str, Any]:
    """Return the options that are arguments of ElmoEmbedder.embed_file."""
    return {
        "output_format": arguments.layers,
        "file_format": arguments.format,
        "dtype": DTYPES[arguments.dtype],
        **_common.named(arguments, "batch_size", "max_tokens", "forget_sentences", "use_sentence_keys"),
    }


def rank_of(shard: str | None, environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Return this process's rank among those that work together; None if it works alone.

    shard: "i/N", which overrides what a launcher says; without it, torchrun's variables, or those of a step of srun
    with several tasks. Raises ElmoFastError for another text, or i outside 0 to N - 1.
    """
    if shard is not None:
        match = re.fullmatch(r"(\d+)/(\d+)", shard)
        if match is None or not int(match[1]) < int(match[2]):
            raise ElmoFastError(f"--shard must be i/N with i from 0 to N-1, such as 0/4; got {shard!r}")
        return Rank(int(match[1]), int(match[2]))
    return rank_of_torchrun(environment) or rank_of_srun(environment)


def merge_options(parser: Parser) -> None:
    parser.add_argument("parts", type=str, metavar="PARTS", help="folder of parts; all of them must be complete")
    parser.reads("parts")
    parser.add_argument("output_file", type=str, metavar="OUTPUT", help="file to write")
    parser.writes("output_file")
    parser.option(
        "format",
        Format,
        "format of the file, as in `elmo-fast embed` (default: by the ending of OUTPUT; without one: as given there)",
    )
    parser.shared("file_friendly_logging")


def run_merge(arguments: Any) -> None:
    """Join the parts that several processes of `elmo-fast embed` wrote into the file that one would have written.

    Checks the digest of every part first. The file appears only when it is complete; the folder stays.
    """
    from elmo_fast.embed.parts import merge_parts

    with _common.Progress(arguments, unit="sentences") as progress:
        count = merge_parts(arguments.parts, arguments.output_file, arguments.format, progress.reach)
    _common.logger().info("%s: %d sentences", arguments.output_file, count)
