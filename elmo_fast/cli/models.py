"""Commands for models as files: `elmo-fast models`, `download`, `upload` and `convert`."""

import math
import os
import pathlib
import re
import shutil
import warnings
from typing import Any, Literal

from elmo_fast._io.atomic_file import writing
from elmo_fast._io.atomic_folder import has_files, write_folder
from elmo_fast._io.compressed import reading
from elmo_fast._runtime.memory import size
from elmo_fast.cli import _common
from elmo_fast.cli._parser import Command, ModelNames, flag, option
from elmo_fast.errors import ElmoFastError


def run_models(options: Command) -> None:
    """List the models that have a name, which every command takes as --model and `from_pretrained` as its argument.

    They are the one that comes with elmo_fast, and AllenNLP's published ones, downloaded on first use.
    """
    from elmo_fast.checkpoints import PUBLISHED, bundled_models, cached_folder, named_folder

    rows = [("name", "size", "where", "trained on")]
    for name in bundled_models():
        folder = named_folder(name)
        rows.append((name, _size_of(folder), "comes with elmo_fast", "English prose"))
    for name, model in PUBLISHED.items():
        folder = cached_folder(name)
        cached = has_files(folder, model.options, model.weights)
        size_text = "unknown" if model.millions is None else f"about {size(4e6 * model.millions)}"
        rows.append(
            (name, _size_of(folder) if cached else size_text, str(folder) if cached else "not downloaded", model.text)
        )
    _common.print_table(rows)


def _size_of(folder: Any) -> str:
    return size(sum(file.stat().st_size for file in folder.iterdir()))


class _DownloadOptions(Command):
    name: str = option(positional=True, metavar="NAME")
    """name that `elmo-fast models` lists, such as original; or user/name, user/name@revision on the hub"""
    prefix: str | None = None
    out_dir: str | None = None
    """folder to write (default: torch's cache, which TORCH_HOME moves, or the hub's)"""


def run_download(options: _DownloadOptions) -> None:
    """Download a published model, or a model from the Hugging Face hub, check that it is complete, print its folder.

    A model is weights, options, vocab.txt and README.md; every command accepts the folder as --model.
    """
    from elmo_fast.checkpoints import PUBLISHED, download, load_checkpoint, published_folder

    download = published_folder if options.name in PUBLISHED else download
    folder = download(options.name, options.out_dir)
    load_checkpoint(folder, prefix=options.prefix)
    print(folder)


class _UploadOptions(Command):
    folder: str = option(positional=True)
    """folder of a model; of an unfinished run: its newest checkpoint"""
    repo: str = option(positional=True)
    """user/name on the hub; created if it does not exist"""
    prefix: str | None = None
    private: bool = flag()
    """make the repository private; refused if it exists and is public"""
    licence: str | None = None
    """license of the weights, as the hub spells it, such as mit"""


def run_upload(options: _UploadOptions) -> None:
    """Upload a model to the Hugging Face hub: its weights, its options, vocab.txt and a page about it.

    The page is README.md of FOLDER if you wrote or edited it, else one generated from the options and the run's
    metrics.jsonl. Nothing else is uploaded. Log in first: `hf auth login`, or HF_TOKEN in the environment.
    """
    from elmo_fast.checkpoints import file_beside, load_checkpoint, model_files, pretrained_folder, upload

    if options.licence is not None and not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", options.licence):
        raise ElmoFastError(f"--licence must be one word such as mit or apache-2.0; got {options.licence!r}")
    folder = pretrained_folder(options.folder, from_hub=False)
    state, about = load_checkpoint(folder, prefix=options.prefix)  # all of it: nothing damaged is uploaded
    files = [*model_files(folder), *filter(None, [file_beside(folder)])]
    page = page_of(options.repo, options.licence, folder, state, about)
    address = upload(options.repo, files, page, private=options.private)
    print(f"{address}: {', '.join(file.name for file in files)}, README.md")


def page_of(repo: str, licence: str | None, folder: pathlib.Path, state: Any, about: Any) -> str:
    """Return README.md of the folder, or a new page, with the metrics up to the model's step if it is of a run."""
    from elmo_fast._runtime.progress import METRICS_FILE
    from elmo_fast.checkpoints import file_beside, read_config
    from elmo_fast.pretrain.metrics import read_metrics
    from elmo_fast.pretrain.model_card import is_unchanged, model_card, rows_of

    written = file_beside(folder, ["README.md"])
    page = None if written is None else written.read_text(encoding="utf-8", errors="replace")
    if page is not None and not is_unchanged(page):
        if licence is None:
            return page
        raise ElmoFastError(f"{written} exists and will be the page; state the license there, and leave out --licence")
    if licence is None:
        warnings.warn("no --licence: the page will not state the license of the weights", stacklevel=2)
    file = file_beside(folder, [METRICS_FILE])
    step = None if file is None else read_config(folder).get("extra", {}).get("pretraining_step")
    metrics = None if file is None or step is None else read_metrics(file.parent).until(step)
    return model_card(repo, state, about, metrics, licence, None if page is None else rows_of(page, "Text"))


# First and last words, a long word, several scripts, and sentences of different length.
SAMPLE = [
    ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "."],
    ["Résumé", "naïve", "日本語", "•", "x" * 60],
    ["."],
]
# What a conversion may write; none of it may exist before, or the folder would contain parts of two models.
WRITTEN = {
    "safetensors": ("config.json", "model.safetensors", "manifest.json", "vocab.txt"),
    "hdf5": ("options.json", "weights.hdf5", "softmax.hdf5", "manifest.json", "vocab.txt"),
}
# Adding and subtracting the forget bias's 1 may change the last place of a bias.
TOLERANCE = 1e-5


class _ConvertOptions(ModelNames):
    threads: int | None = None
    softmax_file: str | None = None
    to: Literal["safetensors", "hdf5"] = "safetensors"
    """safetensors: config.json and model.safetensors; hdf5: bilm-tf's options.json and weights.hdf5, and softmax.hdf5
    if the model has a softmax; either way with the model's vocab.txt"""
    precision: Literal["float32", "int8"] = "float32"
    """with --to safetensors: int8 rounds the weights, to about a quarter of the size; to also compute in int8, give
    --precision int8 to the other commands"""
    out_dir: str
    """folder to write"""


def run_convert(options: _ConvertOptions) -> None:
    """Convert a model to another format, read the result back, and compare the vectors of both on sample text."""
    from elmo_fast import checkpoints

    _common.resolve_model(options)
    _common.set_up(options)
    state, about = _common.load_state(options)
    folder, int8 = pathlib.Path(options.out_dir), options.precision == "int8"
    if options.to == "hdf5" and about.why_not_trainable is not None:
        raise ElmoFastError(
            f"--to hdf5: bilm-tf's format cannot store this model: {about.why_not_trainable}; give --to safetensors"
        )
    for name in WRITTEN[options.to]:
        if has_files(folder, name):
            raise ElmoFastError(f"{os.fspath(folder / name)!r} exists already; give another --out_dir, or remove it")
    if int8 and options.to != "safetensors":
        raise ElmoFastError("--precision int8 needs --to safetensors: bilm-tf's format has no place for the scales")
    embeds = not int8 and not about.reads_word_ids
    # The files appear in the folder when all are complete: a folder of a killed command would be refused above.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with write_folder(folder) as new:
        if options.to == "safetensors":
            checkpoints.save_folder(new, state, about, precision=options.precision)
        else:
            weights = checkpoints.bilm_part(state)
            if left := sorted(state.keys() - weights.keys()):
                warnings.warn(f"bilm-tf's format cannot store {', '.join(left)}: left out", stacklevel=2)
            checkpoints.write_bilm_hdf5(new / "weights.hdf5", weights, about, softmax_file=new / "softmax.hdf5")
            checkpoints.write_options(new / "options.json", about.with_n_characters(262))
        expected = checkpoints.from_int8(checkpoints.to_int8(state), folder) if int8 else state
        difference = _largest_difference(about, expected, new, compare_vectors=embeds)
        if not difference <= TOLERANCE:
            raise ElmoFastError(
                f"{folder}: the written model differs (largest difference {difference:.3g}, wanted at most "
                f"{TOLERANCE:g}); it was removed again"
            )
        place = options.model or os.path.dirname(str(options.weight_file))
        if (vocabulary := checkpoints.file_beside(place)) is not None:
            with reading(vocabulary) as packed, writing(new / "vocab.txt") as copy:
                shutil.copyfileobj(packed, copy)
        files = ", ".join(name for name in WRITTEN[options.to] if (new / name).exists())
    what = "weights and vectors of sample text" if embeds else "weights"
    rounded_to = " from the weights rounded to int8" if int8 else ""
    print(f"{folder}: {files} | read back, {what} differ by at most {difference:.3g}{rounded_to}")


def _largest_difference(options: Any, state: Any, folder: pathlib.Path, *, compare_vectors: bool) -> float:
    """Return the largest |difference| between tensors and, if requested, vectors of the sample of two models.

    They are that of the options and the state, and the one in the folder; infinity if it lacks a tensor.
    """
    from elmo_fast.checkpoints import bilm_part, load_checkpoint
    from elmo_fast.embed.embedder import ElmoEmbedder

    again, read_options = load_checkpoint(folder)
    before, after = bilm_part(state), bilm_part(again)
    if before.keys() != after.keys():
        return math.inf
    pairs = [(before[name].numpy(), after[name].numpy()) for name in before]
    if compare_vectors:
        models = (options, before), (read_options, after)
        sides = [ElmoEmbedder(*model, stateful=False).embed_batch(SAMPLE) for model in models]
        pairs += zip(*sides, strict=True)
    return max(float(abs(a - b).max(initial=0.0)) for a, b in pairs)
