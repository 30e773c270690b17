"""`elmo-fast vocab`, `prepare` and `pretrain`: from text to a vocabulary, to numbers, to a language model."""

import logging
import os
import pathlib
import shlex
import sys

from elmo_fast._io.fields import MIN_COUNT
from elmo_fast._runtime.memory import size
from elmo_fast._runtime.progress import duration
from elmo_fast.cli import _common, check
from elmo_fast.cli._parser import Parser, Reading, Running, flag, option
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import SECTIONS, PretrainConfig, preset_file, presets


class _VocabOptions(Reading):
    train_prefix: str
    processes: int | None = None
    vocab_file: str = option(writes="stream")
    """file to write, compressed if its name ends in .gz; - is the standard output"""
    min_count: int = MIN_COUNT
    max_size: int | None = None
    """maximum size of the vocabulary, including the three markers"""


def run_vocab(options: _VocabOptions) -> None:
    """Write the words of a corpus by decreasing count, after <S>, </S> and <UNK>, one per line."""
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary, unknown_hints
    from elmo_fast.text.vocabulary import built_vocabulary

    Vocabulary.build({}, options.min_count, options.max_size)  # reports invalid values at once
    with _common.Progress(options, unit="B") as progress:
        reading = _common.reading(options, options.tokenizer, options.train_prefix)
        counts = count_words_of(options.train_prefix, options.processes, progress.read, **reading)
    vocabulary, size = built_vocabulary(counts, options.min_count, options.max_size)
    with _common.printed_text(options.vocab_file) as file:
        vocabulary.write(file)
    covered = sum(counts[word] for word in vocabulary.words)
    share = f"{100 * covered / counts.total():.2f}% of {counts.total()} tokens"
    known = f"{len(vocabulary) - 3} of {len(counts)} distinct words"
    name = "standard output" if options.vocab_file == "-" else options.vocab_file
    hints = unknown_hints(vocabulary, counts.__getitem__, counts.total())
    for line in [size, f"{name}: {len(vocabulary)} lines; {known}, {share}", *hints]:
        _common.logger().info("%s", line)


class _PrepareOptions(Reading):
    train_prefix: str
    processes: int | None = None
    out_dir: str
    """folder to write"""
    vocab_file: str | None = None
    """vocabulary, the words to predict (default: built from the text)"""
    min_count: int = MIN_COUNT
    """if the vocabulary is built from the text: leave out words that occur less often"""
    max_vocab_size: int | None = None
    """if the vocabulary is built from the text: its maximum size, including the three markers; null: no limit"""
    heldout_share: float = 0.0
    """fraction of the lines, such as 0.01, chosen by a digest of each line (so in any order of files the same ones),
    that are written to OUT_DIR-heldout in place of OUT_DIR, to evaluate on (pretrain --heldout_share)"""
    shard_tokens: int = 2**28
    """maximum number of tokens per file"""
    ray: str | None = None
    overwrite: bool = flag()
    """replace OUT_DIR if it is a prepared folder"""


def run_prepare(options: _PrepareOptions) -> None:
    """Read text once (one sentence per line) and write it as numbers, which `elmo-fast pretrain` opens at once.

    The length of the text does not matter. The folder appears only when it is complete.
    """
    from elmo_fast.corpus import is_prepared, prepare
    from elmo_fast.corpus.encoding import heldout_line, warn_of_unknown
    from elmo_fast.corpus.folder import heldout_of, open_corpus
    from elmo_fast.text import Vocabulary

    if options.ray is not None and options.processes is not None:
        raise ElmoFastError("--processes is of this machine, and --ray reads with its cluster's; give one of them")
    vocabulary = None
    if options.vocab_file is not None:
        if options.min_count != MIN_COUNT or options.max_vocab_size is not None:
            raise ElmoFastError("--vocab_file names the words; leave out --min_count and --max_vocab_size")
        vocabulary = Vocabulary.read(options.vocab_file)
    there = is_prepared(options.out_dir) and not options.overwrite
    names = ("min_count", "max_vocab_size", "processes", "ray", "shard_tokens", "heldout_share", "overwrite")
    with _common.Progress(options, unit="B") as progress:
        corpus = prepare(
            options.train_prefix,
            options.out_dir,
            vocabulary=vocabulary,
            progress=progress.read,
            report=progress.say,
            **_common.arguments(options, *names),
            **_common.reading(options, options.tokenizer, options.train_prefix),
        )
    if vocabulary is not None:
        warn_of_unknown(corpus)
    how = "existed already, unchanged" if there else f"written in {duration(progress.seconds)}"
    heldout = open_corpus(heldout_of(options.out_dir)) if options.heldout_share else None
    share = f"--heldout_share {options.heldout_share} " if heldout else ""
    words, known, folder = corpus.tokens, 1 - corpus.unknown / corpus.tokens, options.out_dir
    for line in [
        f"text   {words:,} words, {corpus.sentences:,} sentences; {len(corpus.types):,} distinct words, including the "
        "vocabulary",
        f"vocab  {len(corpus.vocabulary):,} words, which are {known:.2%} of the text; others are predicted as <UNK>",
        *([heldout_line(heldout, corpus)] if heldout else []),
        *corpus.hints,
        f"done   {folder} {how}; {size(sum(file.stat().st_size for file in pathlib.Path(folder).iterdir()))}, shards: "
        f"{len(corpus.shards)}, fingerprint: {corpus.fingerprint[:16]}",
        f"next   elmo-fast pretrain --config small --train_prefix {shlex.quote(folder)} {share}--save_dir run",
        "       with --dry_run, that reports its steps, hours at the speed measured here, memory and disk",
    ]:
        _common.logger().info("%s", line)


class _PretrainOptions(Running):
    """Options of `pretrain` besides the fields of its configuration."""

    dry_run: bool = flag()
    """report weights, memory, disk, steps, and hours at the speed of a few steps measured here; write nothing"""
    n_gpus: int | None = None
    """bilm-tf's flag: prints the torchrun command to use instead"""

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Make every field of the configuration an option; --config takes a file or the name of a preset."""
        parser.presets = {name: str(preset_file(name)) for name in presets()}
        parser._option_string_actions["--config"].help = "name of a preset, or YAML, JSON or TOML file of these options"
        parser.description = f"{parser.description} Start from a preset: --config {' | '.join(presets())}."
        super().add_to(parser)
        for name, section in SECTIONS.items():
            parser.fields(section, name, {"save_dir": ["-s", "--serialization_dir"]})  # bilm-tf's and AllenNLP's names


def run_pretrain(options: _PretrainOptions) -> int:
    """Train a bidirectional language model."""
    from elmo_fast.pretrain.dry_run import dry_run
    from elmo_fast.pretrain.run import pretrain

    if options.n_gpus is not None and options.n_gpus > 1 and "WORLD_SIZE" not in os.environ:
        raise ElmoFastError(
            "--n_gpus: torchrun starts the processes, one per GPU: torchrun --standalone "
            f"--nproc-per-node={options.n_gpus} -m elmo_fast pretrain --device cuda ... (--batch_size counts the "
            f"rows of all GPUs together: bilm-tf's 128 rows on each are --batch_size {128 * options.n_gpus})"
        )
    device = _common.set_up(options)
    config = PretrainConfig.from_flat(options.settings)
    if options.dry_run:
        dry_run(config, report=_common.logger().info, device=device)
        return 0
    if os.environ.get("RANK", "0") == "0":
        check.remind(device)
    done = pretrain(config, report=_common.logger().info, device=device)
    interrupted = done.stopped_by == "interrupt"
    if not interrupted and os.environ.get("RANK", "0") == "0":
        folder = shlex.quote(str(done.folder))
        _common.logger().info(f"next   elmo-fast eval --save_dir {folder} --test_prefix FILES")
        _common.logger().info(f"       elmo-fast embed IN.txt OUT.hdf5 --average --model {folder}")
        _common.logger().info(f"       elmo-fast plot {folder}")
    # Ctrl-C is 130, SIGTERM 143; either way everything is saved.
    status = 128 + done.signal if interrupted else 0
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Everything is written. A gloo thread that wakes up while Python shuts down would abort the process, and
        # torchrun would consider a successful run failed.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
