"""`elmo-fast embed`, `merge`, `neighbours` and `cache-vocab`: vectors of tokens, written or searched."""

import dataclasses
import itertools
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal, cast

from jsonargparse import ActionYesNo

from elmo_fast._runtime import cluster
from elmo_fast._runtime.devices import gpu_numbered
from elmo_fast._runtime.process import Rank, rank_of_srun, rank_of_torchrun
from elmo_fast._runtime.progress import duration
from elmo_fast.cli import _common, check
from elmo_fast.cli._parser import WHAT_IS_READ, Command, Model, Parser, Reading, flag, option
from elmo_fast.embed.token_files import STANDARD_OUTPUT, Format, format_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Pool
from elmo_fast.text import Source, opened_source, read_words
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.sources import Column
from elmo_fast.text.tokenizers import LINES_LOOKED_AT, RAW_TEXT_ADVICE, first_raw_line

LAYERS = ("all", "top", "average")
DTYPES = {"f32": "float32", "f16": "float16"}
CONTEXT = 6  # tokens on each side of a neighbour


class _EmbedOptions(Model, Reading):
    input_file: str = option(positional=True, metavar="INPUT", help=WHAT_IS_READ)
    output_file: str = option(positional=True, metavar="OUTPUT", writes="stream")
    """file to write, also as --output OUTPUT; - prints JSON lines on the standard output; with several processes:
    folder to write"""
    layers: Literal["all", "top", "average"] = "all"
    format: Format | None = None
    """format of OUTPUT; hdf5: one dataset per sentence, as AllenNLP; parquet: one row per sentence, with the other
    columns of a table (not with several processes); jsonl: one JSON object per sentence; the others: embeddings
    [tokens, layers, 2D] and offsets (default: by the ending of OUTPUT: .hdf5 or .h5, .npz, .safetensors, .parquet,
    .jsonl; without one: hdf5)"""
    pool: Pool | None = None
    """write one vector per line (with --layers all, one per layer): the mean or max of its tokens, or first_last, the
    forward half of the last one and the backward half of the first; hdf5, safetensors and npz then have embeddings
    [lines, layers, 2D] or, of one layer, [lines, 2D]"""
    dtype: Literal["f32", "f16"] = "f32"
    """numbers in OUTPUT"""
    batch_size: int | None = None
    max_tokens: int | None = None
    stateful: bool = option(False, action=ActionYesNo(no_prefix="no_"))
    """carry the LSTM state from batch to batch: AllenNLP's vectors, if --batch_size (there 64) and the order of the
    lines are as then; without it the same sentence always has the same vectors, and several processes can share the
    work"""
    forget_sentences: bool = flag()
    """leave out the sentences: with hdf5 sentence_to_index, with safetensors names"""
    use_sentence_keys: bool = flag()
    """with hdf5: name the datasets by their sentences, not by their numbers"""
    shard: str | None = None
    """i/N, from 0/N: this is process i of N that embed INPUT into the folder OUTPUT (torchrun and srun set this); 0/1:
    one process writes a folder, and can resume; on one machine, also set --threads"""
    ray: str | None = None
    part_lines: int | None = None
    """lines per part, a multiple of 16 times --batch_size (default: about eight parts per process, each at most 256
    times --batch_size)"""
    cuda_device: int | None = None
    """number of the GPU, or -1 for the CPU: --device as AllenNLP has it"""
    vocab_path: str | None = None
    """ignored, as by AllenNLP"""

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Add --layers with a short form of each of its values."""
        group = parser.add_mutually_exclusive_group()
        which = "which layers: all, [layers, tokens, 2D] per sentence; the top one, or their average, [tokens, 2D]"
        group.add_argument("--layers", choices=LAYERS, default="all", help=which)
        for layers in LAYERS:
            same: dict[str, Any] = {"action": "store_const", "const": layers, "dest": "layers", "default": "all"}
            group.add_argument(f"--{layers}", help=f"same as --layers {layers}", **same)
        super().add_to(parser)


def run_embed(options: _EmbedOptions) -> None:
    """Write the vectors of every token of INPUT to OUTPUT.

    The file appears only when it is complete. Several processes share the work if torchrun or srun starts them, or if
    each gets --shard. OUTPUT is then a folder, on a disk that all of them see, with one file per part of the text;
    process i writes the parts i, i + N, ... To resume, run the same command again: existing parts are kept. `elmo-fast
    merge` joins the parts into one file; in Python, elmo_fast.ElmoVectors opens the folder, or a file of --format
    safetensors.
    """
    if options.cuda_device is not None:
        if options.device != "auto":
            raise ElmoFastError("--device and --cuda_device name the same thing; give one of them")
        options.device = str(gpu_numbered(options.cuda_device, "--cuda_device"))
    _common.choose_device(options)
    if options.ray is not None:
        _embed_on_cluster(options, options.ray)
        return
    process = rank_of(options.shard)
    if process is None:
        options.format = cast(Format, format_of(options.output_file, options.format))
    options.format = options.format or "hdf5"  # of a folder: what merging writes
    if options.use_sentence_keys and options.format != "hdf5":
        raise ElmoFastError(f"--use_sentence_keys needs --format hdf5; got --format {options.format}")
    if process is None and options.part_lines is not None:
        raise ElmoFastError("--part_lines needs --shard, torchrun or srun; one process alone writes one file")
    if process is not None and options.output_file == STANDARD_OUTPUT:
        raise ElmoFastError("several processes write a folder; OUTPUT cannot be the standard output (-)")
    if process is not None and options.pool is not None:
        raise ElmoFastError("--pool writes one file; leave out --shard, torchrun and srun")
    if process is not None and options.input_file == "-":
        raise ElmoFastError("standard input cannot be shared among processes; give a file that all of them can read")
    _common.resolve_model(options, default="mini")
    tokenizer = _common.tokenizer_of(options)
    with opened_source(options.input_file, **_common.reading(options, tokenizer, options.input_file)) as source:
        if process is None:
            _embed_alone(options, source, tokenizer)
        else:
            _embed_parts(options, source, process)


def _embed_alone(options: _EmbedOptions, source: Source, tokenizer: str | None) -> None:
    hdf5 = options.format == "hdf5"
    keys = options.use_sentence_keys or (hdf5 and source.keyed)
    if tokenizer is None and not source.keyed:
        first = list(itertools.islice(source.sentences(), LINES_LOOKED_AT))
        line = first_raw_line([each.name for each in first], [len(each.tokens) for each in first])
        if line is not None:
            warnings.warn(f"{source.place(line)} {RAW_TEXT_ADVICE}", stacklevel=1)
    embedder = _common.load_embedder(options, stateful=options.stateful)
    check.remind(options.device)
    with _common.Progress(options) as progress:
        sentences = embedder.embed_file(
            source,
            options.output_file,
            **_settings(options) | {"use_sentence_keys": keys},
            pool=options.pool,
            progress=progress.reach,
        )
    speed = int(progress.n / max(progress.seconds, 1e-9))
    summary = f"{sentences} sentences, {progress.n} tokens in {duration(progress.seconds)} ({speed} tok/s)"
    name = "standard output" if options.output_file == STANDARD_OUTPUT else options.output_file
    _common.logger().info("%s: %s", name, summary)


def _embed_parts(options: _EmbedOptions, source: Source, process: Rank) -> None:
    """Write this process's parts; the first process alone shows its progress."""
    if options.device == "cuda":  # the GPU of this process's number on its machine, round after round
        import torch

        options.device = f"cuda:{process.local_rank % max(1, torch.cuda.device_count())}"
    embedder = _common.load_embedder(options, stateful=options.stateful)
    if process.rank == 0:
        check.remind(options.device)
        if options.format == "parquet" and isinstance(source, Column):
            warnings.warn(
                f"{options.output_file}: parts do not hold the other columns of {source.name}; one process that "
                "writes a file does",
                stacklevel=1,
            )
    from elmo_fast.embed import embed_parts

    options.quiet |= process.rank > 0
    with _common.Progress(options) as progress:
        written = embed_parts(
            embedder,
            source,
            options.output_file,
            (process.rank, process.world_size),
            **_settings(options),
            part_sentences=options.part_lines,
            progress=progress.reach,
            say=_common.logger().info,
        )
    summary = f"{written.parts} of {written.all_parts} parts, {written.tokens} tokens in {duration(progress.seconds)}"
    _common.logger().info("%s: process %d of %d wrote %s", options.output_file, *process[:2], summary)


def _embed_on_cluster(options: _EmbedOptions, address: str) -> None:
    """Run `--shard i/N` as task i of the cluster, so that a task that runs again keeps the existing parts."""
    if options.shard is not None:
        raise ElmoFastError("--ray divides the work itself; leave out --shard")
    threads, gpu = options.threads or 1, options.device.startswith("cuda")
    with cluster.connected(address, "embed --ray") as ray:
        resources = ray.cluster_resources()  # tasks that run at a time, each on a GPU or on so many CPUs
        count = max(1, int(resources.get("GPU", 0) if gpu else resources.get("CPU", 0) // threads))
        common = dataclasses.replace(options, ray=None, threads=threads, quiet=True)
        tasks = [dataclasses.replace(common, shard=f"{number}/{count}") for number in range(count)]
        for number, _ in enumerate(cluster.results_in_order(ray, run_embed, tasks, threads, gpu), 1):
            _common.logger().info("%s: %d of %d tasks have written their parts", options.output_file, number, count)


def _settings(options: _EmbedOptions) -> dict[str, Any]:
    """Return the options that are options of ElmoEmbedder.embed_file."""
    return {
        "output_format": options.layers,
        "file_format": options.format,
        "dtype": DTYPES[options.dtype],
        **_common.arguments(options, "batch_size", "max_tokens", "forget_sentences", "use_sentence_keys"),
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


class _MergeOptions(Command):
    parts: str = option(positional=True, metavar="PARTS")
    """folder of parts; all of them must be complete"""
    output_file: str = option(positional=True, metavar="OUTPUT", writes="file")
    """file to write"""
    format: Format | None = None
    """format of the file, as in `elmo-fast embed` (default: by the ending of OUTPUT; without one: as given there)"""
    file_friendly_logging: bool = flag()


def run_merge(options: _MergeOptions) -> None:
    """Join the parts that several processes of `elmo-fast embed` wrote into the file that one would have written.

    Checks the digest of every part first. The file appears only when it is complete; the folder stays.
    """
    from elmo_fast.embed import merge_parts

    with _common.Progress(options, unit="sentences") as progress:
        count = merge_parts(options.parts, options.output_file, options.format, progress.reach)
    _common.logger().info("%s: %d sentences", options.output_file, count)


class _NeighboursOptions(Model, Reading):
    text: str = option("", positional=True, metavar="TEXT", nargs="?")
    """text to search, one sentence per line, plain, .gz or .zst; - is the standard input; or as --format_in says"""
    corpus: str = ""
    """same as TEXT"""
    query: str = ""
    """sentence whose nearest sentences to list; with --index: that has the token"""
    query_file: str | None = None
    """text with many queries, in place of --query: one per line, or any file that TEXT can be"""
    index: int | None = None
    """position of a token in --query, from 0: list the nearest tokens, not sentences; TEXT and --query are split by the
    same --tokenizer"""
    topn: int = 10
    layer: int | str | None = None
    """layer: "top", "average", "all" (one list per layer) or a number from 0 (default: average; with --index: top)"""
    pool: Pool | None = None
    """vector of a sentence: the mean or max of its tokens, or first_last, the forward half of the last one and the
    backward half of the first (default: mean)"""
    batch_size: int | None = None
    max_tokens: int | None = None
    remove_components: int | None = None
    """of sentences: subtract the mean of all vectors (0), or also their first principal components (1, 2, ...)"""
    cache: str | None = option(None, writes="file")
    """folder for the vectors of TEXT, which the first command writes and later ones read; refused if TEXT, the model or
    an option of the vectors has changed; it takes 4 bytes x sentences (with --index: tokens) x width (1024 in the
    original model) per layer"""


def run_neighbours(options: _NeighboursOptions) -> None:
    """List the sentences of a text that are nearest to a sentence, by the cosine of their vectors.

    With --index, list the tokens of the text that are nearest to one token of the sentence.
    """
    if bool(options.text) == bool(options.corpus):
        raise ElmoFastError("name one text, as TEXT or with --corpus")
    options.corpus = options.corpus or options.text
    _common.resolve_model(options, default="mini")
    if options.index is None:
        _print_sentences(options)
    else:
        _print_tokens(options, options.index)


def _print_sentences(options: _NeighboursOptions) -> None:
    from elmo_fast import SentenceIndex
    from elmo_fast.embed.layers import layer_names

    stored = _common.tokenizer_of(options)
    tokenizer: Any = stored or "whitespace"
    queries = _queries(options, tokenizer)
    reading = _common.reading(options, tokenizer, options.corpus, options.query_file)
    with opened_source(options.corpus, **reading) as corpus:
        bilm = _common.load_embedder(dataclasses.replace(options, tokenizer=None)).elmo_bilm  # of any text, one digest
        layers = "average" if options.layer is None else options.layer
        with _common.Progress(options) as progress:
            index = SentenceIndex.build(
                bilm,
                corpus,
                layers=layers,
                pool=options.pool or "mean",
                tokenizer=tokenizer,
                progress=progress.reach,
                **_common.arguments(options, "cache", "remove_components", "batch_size", "max_tokens"),
            )
            words = [words for _, words in queries]
            names = layer_names(layers, bilm.num_layers)
            results = {name: index.search(words, options.topn, layer=name) for name in names}
    found = [sentence.text for near in results.values() for each in near for sentence in each]
    lines = [*(query for query, _ in queries), *found]
    if stored is None and first_raw_line(lines, [len(line.split()) for line in lines]) is not None:
        warnings.warn(f"{options.corpus} {RAW_TEXT_ADVICE}", stacklevel=1)
    for number, (query, _) in enumerate(queries):
        for name, near in results.items():
            print(f"{query}   layer {name}")
            for rank, sentence in enumerate(near[number], start=1):
                text = " ".join(sentence.text.split())  # a value of a table may have several lines
                print(f"{rank:>3}  {sentence.cosine:.4f}  {corpus.place(sentence.number)}: {text}")


def _queries(options: _NeighboursOptions, tokenizer: str | None) -> list[tuple[str, list[str]]]:
    """Return each query's text and tokens."""
    if options.query and options.query_file is not None:
        raise ElmoFastError("--query and --query_file both name queries; give one of them")
    split = tokenizer_of(tokenizer)
    queries = [(options.query, split(options.query))] if options.query_file is None else []
    if options.query_file is not None:
        with opened_source(options.query_file, column=options.column, tokenizer=tokenizer) as asked:
            queries += [(asked.shown(each), each.tokens) for each in asked.sentences() if each.tokens]
    if not queries or not queries[0][1]:
        what = "a query of at least one word with --query, or a file of them with --query_file"
        raise ElmoFastError(f"give {what}; got {options.query_file or options.query!r}")
    return queries


def _print_tokens(options: _NeighboursOptions, index: int) -> None:
    from elmo_fast.tokens import check_query, in_context, nearest_tokens

    for name in ("pool", "remove_components", "query_file"):
        if getattr(options, name) is not None:
            raise ElmoFastError(f"--{name} is for sentences, and --index for tokens; leave out one of them")
    tokenizer = _common.tokenizer_of(options)
    query = tokenizer_of(tokenizer)(options.query)
    check_query(query, index, options.topn)
    with opened_source(options.corpus, **_common.reading(options, tokenizer, options.corpus)) as corpus:
        bilm = _common.load_embedder(options).elmo_bilm
        with _common.Progress(options) as progress:
            layers = "top" if options.layer is None else options.layer
            keywords = _common.arguments(options, "topn", "cache", "batch_size", "max_tokens")
            results = nearest_tokens(bilm, corpus, query, index, layers=layers, progress=progress.reach, **keywords)
    for name, near in results.items():
        print(f"{in_context(query, index, CONTEXT, ellipsis='...')}   layer {name}")
        for rank, token in enumerate(near, start=1):
            sentence = in_context(token.tokens, token.place, CONTEXT, ellipsis="...")
            print(f"{rank:>3}  {token.cosine:.4f}  {corpus.place(token.line)}: {sentence}")


class _CacheVocabOptions(Model):
    vocab_file: str
    """words, one per line, such as a vocabulary"""
    output: str = option(writes="file")
    """HDF5 file to write"""
    batch_size: int = 1024
    """words per batch"""
    file_friendly_logging: bool = flag()


def run_cache_vocab(options: _CacheVocabOptions) -> None:
    """Write the dataset `embedding` [words, D]: the character encoder's vector of every word.

    A row is a line of --vocab_file, also if it is blank or a marker (<S>, </S>, <UNK>), of which there may be none.
    """
    from elmo_fast.static import write_word_vectors

    _common.resolve_model(options)
    words, file = read_words(options.vocab_file), options.output
    bilm = _common.load_embedder(options).elmo_bilm
    with _common.Progress(options, len(words), unit="words") as progress:
        write_word_vectors(bilm, words, file, batch_size=options.batch_size, progress=progress.add)
    _common.logger().info("%s: %d words in %s", file, progress.n, duration(progress.seconds))
