"""`elmo-fast convert`: between bilm-tf's options.json + HDF5 and our config.json + safetensors, verified."""

import os
import pathlib
import shutil
from typing import Any, Literal

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import reading, writing

# First and last words, a long word, several scripts, and sentences of different length.
SAMPLE = [
    ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "."],
    ["Résumé", "naïve", "日本語", "•", "x" * 60],
    ["."],
]
# What a conversion may write; none of it may exist before, or the folder would contain parts of two models.
WRITTEN = {
    "safetensors": ("config.json", "model.safetensors", "manifest.json", "vocab.txt"),
    "hdf5": ("options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt"),
}
# Adding and subtracting the forget bias's 1 may change the last place of a bias.
TOLERANCE = 1e-5


def build_parser() -> Any:
    parser = _common.new_parser(
        "convert",
        "Converts a model to another format, reads the result back, and compares the vectors of both on sample text.",
        shared=("threads",),
    )
    parser.shared(*_common.MODEL_NAMES, "softmax_file")
    parser.option(
        "to",
        Literal["safetensors", "hdf5"],
        "safetensors: config.json and model.safetensors; hdf5: bilm-tf's options.json and weights.hdf5, and "
        "softmax.hdf5 if the model has a softmax; either way with the model's vocab.txt",
        required=True,
    )
    parser.option(
        "precision",
        Literal["float32", "int8"],
        "with --to safetensors: int8 rounds the weights, to about a quarter of the size; to also compute in int8, give "
        "--precision int8 to the other commands",
        default="float32",
    )
    parser.option("out_dir", str, "folder to write", required=True)
    return parser


def run(arguments: Any) -> int:
    """Convert, then verifies; exit status 2, with the files removed again, if the vectors differ."""
    from elmo_fast.checkpoints import from_int8, to_int8

    _common.resolve_model(arguments)
    _common.set_up(arguments)
    state, options = _common.load_state(arguments)
    folder = pathlib.Path(arguments.out_dir)
    if arguments.to == "hdf5" and options.peculiar is not None:
        raise ElmoFastError(
            f"--to hdf5: bilm-tf's format cannot store this model: {options.peculiar}; give --to safetensors"
        )
    for name in WRITTEN[arguments.to]:
        if (folder / name).exists():
            raise ElmoFastError(f"{os.fspath(folder / name)!r} exists already; give another --out_dir, or remove it")
    if arguments.precision == "int8":
        if arguments.to != "safetensors":
            raise ElmoFastError("--precision int8 needs --to safetensors: bilm-tf's format has no place for the scales")
        rounded = from_int8(to_int8(state), folder)
        files = write(arguments.to, folder, state, options, "int8")
        difference = largest_difference(options, rounded, folder, compare_vectors=False)
    else:
        files = write(arguments.to, folder, state, options)
        difference = largest_difference(options, state, folder)
    if not difference <= TOLERANCE:
        for file in files:
            file.unlink(missing_ok=True)
        raise ElmoFastError(
            f"{folder}: the written model differs (largest difference {difference:.3g}, wanted at most "
            f"{TOLERANCE:g}); it was removed again"
        )
    files += copied_vocabulary(arguments, folder)
    what = (
        "weights" if arguments.precision == "int8" or options.reads_word_ids else "weights and vectors of sample text"
    )
    rounded_to = " from the weights rounded to int8" if arguments.precision == "int8" else ""
    read_back = f"read back, {what} differ by at most {difference:.3g}{rounded_to}"
    print(f"{folder}: {', '.join(file.name for file in files)} | {read_back}")
    return 0


def write(to: str, folder: pathlib.Path, state: Any, options: Any, precision: str = "float32") -> list[pathlib.Path]:
    """Write the model in the format `to` and return the files."""
    from elmo_fast.checkpoints import bilm_part, save_folder, write_bilm_hdf5, write_options

    folder.mkdir(parents=True, exist_ok=True)
    if to == "safetensors":
        save_folder(folder, state, options, precision=precision)
    else:
        kept = bilm_part(state)
        if left := sorted(state.keys() - kept.keys()):
            _common.logger().warning("bilm-tf's format cannot store %s: left out", ", ".join(left))
        write_bilm_hdf5(folder / "weights.hdf5", kept, options, softmax_file=folder / "softmax.hdf5")
        write_options(folder / "options.json", options.with_n_characters(262))
    return [folder / name for name in WRITTEN[to] if (folder / name).exists()]


def copied_vocabulary(arguments: Any, folder: pathlib.Path) -> list[pathlib.Path]:
    """Copy vocab.txt from beside the model, if present; return the file written."""
    from elmo_fast.checkpoints import file_beside

    source = file_beside(arguments.model or os.path.dirname(arguments.weight_file))
    if source is None:
        return []
    with reading(source) as packed, writing(folder / "vocab.txt") as file:
        shutil.copyfileobj(packed, file)
    return [folder / "vocab.txt"]


def largest_difference(options: Any, state: Any, folder: pathlib.Path, *, compare_vectors: bool = True) -> float:
    """Return the largest |difference| between the model read and the one written.

    Of tensors and of the sample's vectors.
    """
    from elmo_fast.checkpoints import bilm_part, load_checkpoint
    from elmo_fast.modules import ElmoEmbedder

    again, read_options = load_checkpoint(folder)
    before, after = bilm_part(state), bilm_part(again)
    if before.keys() != after.keys():
        raise ElmoFastError(f"{folder}: tensors differ after writing: {sorted(before.keys() ^ after.keys())}")
    pairs = [(before[name].numpy(), after[name].numpy()) for name in before]
    if compare_vectors and not options.reads_word_ids:
        models = (options, before), (read_options, after)
        sides = [ElmoEmbedder(*model, stateful=False).embed_batch(SAMPLE) for model in models]
        pairs += zip(*sides, strict=True)
    return max(float(abs(a - b).max(initial=0.0)) for a, b in pairs)
