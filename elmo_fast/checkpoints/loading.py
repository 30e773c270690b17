"""Reads a model of any format: a folder, also that of a run, an archive, or a pair of files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .._io.atomic_folder import MANIFEST, has_files, places_of, read_folder
from ..errors import CheckpointError
from ..op_choices import Tokenizer
from .allennlp import read_allennlp_state, read_task_model, task_files, task_weights
from .archives import is_archive, unpacked
from .bilm_checkpoint import checkpoint_files, read_bilm_checkpoint
from .bilm_hdf5 import read_bilm_hdf5
from .manylangs import manylangs_files, read_manylangs
from .options import CONFIG, ElmoOptions, read_options
from .safetensors_folder import WEIGHTS, load_folder, read_config
from .state import State
from .tensor_bundle import INDEX

CHECKPOINTS = "checkpoints"
_STEP = re.compile(r"step-(\d+)")
PathLike = str | os.PathLike[str]
# The formats, as `format_of` and the commands name them.
OWN, MANYLANGS = "elmo_fast: config.json, model.safetensors", "ELMoForManyLangs"
TASK, STATE = "AllenNLP: a model of a task", "AllenNLP: a state dictionary"
CHECKPOINT, HDF5 = "bilm-tf: a checkpoint of TensorFlow", "bilm-tf, AllenNLP: options.json, HDF5 weights"
_TORCH_SUFFIXES = (".th", ".pt", ".pth", ".bin")
OPTIONS, SOFTMAX, VOCABULARY = "options.json", "softmax.hdf5", "vocab.txt"
# The second is that of the NLPL repository.
VOCABULARIES = (VOCABULARY, f"{VOCABULARY}.gz")
# Published names: elmo_2x4096_512_2048cnn_2xhighway_options.json with elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5.
PAIR_NAMES = ("*_options.json", "*_weights.hdf5")


def step_name(step: int) -> str:
    """Return the name of the checkpoint after `step` steps."""
    return f"step-{step:07d}"


def saved_steps(run: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints in a run's folder, each with its step, newest last."""
    folders = (run / CHECKPOINTS).glob("step-*")
    return sorted((int(match[1]), path) for path in folders if (match := _STEP.fullmatch(path.name)))


def is_model(path: PathLike) -> bool:
    """Whether `path` can name a model by itself: it is a folder or an archive, not one file of a pair."""
    return os.path.isdir(path) or is_archive(path)


def model_folder(path: PathLike) -> Path:
    """`path` itself or, if a run in it is unfinished or has continued since, the newest of its checkpoints.

    path: a folder, or an archive (.zip, .tar.gz, .tgz, .tar) of one, which is unpacked into a temporary folder.
    """
    folder = _opened(path)
    saved = saved_steps(folder)
    if not saved or _options_in(folder):
        return folder
    extra = read_config(folder).get("extra") if has_files(folder, CONFIG) else None
    step = extra.get("pretraining_step") if isinstance(extra, dict) else None
    return folder if isinstance(step, int) and step >= saved[-1][0] else saved[-1][1]


def _opened(path: PathLike) -> Path:
    return unpacked(path) if is_archive(path) else Path(path)


def file_beside(folder: PathLike, names: Sequence[str] = VOCABULARIES) -> Path | None:
    """Return the first of the files that a model's folder or archive has; None if it has none.

    Where the folder is a checkpoint, the run's folder is searched too.
    """
    place = _opened(folder).resolve()
    run = [place.parent.parent] if place.parent.name == CHECKPOINTS else []
    return next((file for at in (*places_of(place), *run) for name in names if (file := at / name).is_file()), None)


def model_files(path: PathLike) -> list[Path]:
    """Return the files of the model in a folder or an archive.

    They are config.json, model.safetensors and, if present, manifest.json; or the options (options.json, or the
    published *_options.json), the HDF5 weights and, if present, softmax.hdf5; or the options, model.ckpt-N.index and
    its shards of a run of bilm-tf without HDF5 weights (the checkpoint that the file `checkpoint` names, or the
    newest); or the weights (weights.th, best.th), config.json and options (fta/*.options_file) of an AllenNLP model
    that contains an ELMo; or those of ELMoForManyLangs, token_embedder.pkl first.

    path: the folder or archive, or that of a run, which means its newest checkpoint if the run is unfinished. Weights
    have the name of the options, or are model.hdf5, or the only *.hdf5 file.
    Raises: CheckpointError if the folder contains no model, or several.
    """
    return read_folder(model_folder(path), (), lambda folder: _pick(folder)[1])


def stored_tokenizer(path: PathLike) -> Tokenizer | None:
    """Return the tokenizer that is stored with the model of a folder or archive; None splits at white space."""
    options = model_files(path)[0]
    return read_options(options).tokenizer if options.suffix == ".json" else None


def load_checkpoint(
    model: PathLike | None = None,
    options_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    *,
    prefix: str | None = None,
) -> tuple[State, ElmoOptions]:
    """Return the state and the options of a model, from a folder, an archive or a pair of files.

    model: a folder or an archive that `model_files` accepts; its softmax.hdf5, if present, contains the softmax.
    options_file, weight_file: bilm-tf's options.json, and HDF5 weights, the .index of bilm-tf's checkpoint, an AllenNLP
    .th/.pt state dictionary, or the archive of an AllenNLP model that lacks its options.
    softmax_file: with the pair: HDF5 with softmax/W and softmax/b, if the weights lack them.
    prefix: where the names of the biLM begin in an AllenNLP model that contains several; only such models have one.
    Raises: CheckpointError naming the file and what is wrong with it.
    """
    pair = {"options_file": options_file, "weight_file": weight_file, "softmax_file": softmax_file}
    for name, path in {"model": model, **pair}.items():
        if path is not None and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", os.fspath(path)):
            raise CheckpointError(f"{name} must be a path; got the address {path}; download the file and give its path")
    if model is not None and any(path is not None for path in pair.values()):
        raise CheckpointError("give either model, or options_file and weight_file, which softmax_file needs; got both")
    if model is not None:
        return read_folder(model_folder(model), (), lambda folder: _load(*_pick(folder), prefix))
    if options_file is None or weight_file is None:
        raise CheckpointError(f"give model, or options_file and weight_file; got {options_file=!s}, {weight_file=!s}")
    kind, weights = _format_of_pair(weight_file)
    if softmax_file is not None and kind != HDF5:
        raise CheckpointError(f"softmax_file needs HDF5 weights; got {softmax_file} with {weight_file}")
    softmax = [] if softmax_file is None else [Path(softmax_file)]
    return _load(kind, [Path(options_file), weights, *softmax], prefix)


def format_of(path: PathLike) -> str:
    """Return the name of a model's format.

    path: its folder or archive, or the weights of a pair. Raises: CheckpointError.
    """
    if not is_model(path):
        return _format_of_pair(path)[0]
    return read_folder(model_folder(path), (), _pick)[0]


def _format_of_pair(weight_file: PathLike) -> tuple[str, Path]:
    """Return the format of the weights of a pair, and their file, which may be in an archive of a task's model."""
    if is_model(weight_file) and (inside := task_weights(_opened(weight_file))) is not None:
        return TASK, inside
    path = Path(weight_file)
    return CHECKPOINT if path.suffix == INDEX else STATE if path.suffix.lower() in _TORCH_SUFFIXES else HDF5, path


def _own_files(folder: Path) -> list[Path]:
    files = [folder / CONFIG, folder / WEIGHTS]
    return [*files, *folder.glob(MANIFEST)] if all(file.exists() for file in files) else []


def _options_in(folder: Path) -> list[Path]:
    return [file for file in (folder / OPTIONS, *sorted(folder.glob(PAIR_NAMES[0]))) if file.exists()]


def _hdf5_files(folder: Path) -> list[Path]:
    """Return options, weights and softmax: a pair with matching names; if there is none, the only one of any names."""
    options = _options_in(folder)
    pairs = []
    for file in options:
        names = ["model.hdf5"] * (file.name == OPTIONS) + [file.name.replace(OPTIONS, "weights.hdf5")]
        pairs += [[file, weights] for name in names if (weights := file.with_name(name)).exists()][:1]
    if not pairs:
        others = [file for file in sorted(folder.glob("*.hdf5")) if file.name != SOFTMAX]
        pairs = [[file, weights] for file in options for weights in others]
    if len(pairs) > 1:
        found = "; ".join(" with ".join(file.name for file in pair) for pair in pairs)
        raise CheckpointError(
            f"{folder} contains several models: {found}; choose one with options_file and weight_file, or "
            "put it into a folder of its own"
        )
    return [*pairs[0], *folder.glob(SOFTMAX)] if pairs else []


def _checkpoint_files(folder: Path) -> list[Path]:
    options = _options_in(folder)
    return [*options, *files] if len(options) == 1 and (files := checkpoint_files(folder)) else []


# What finds the files of a model in a folder, by format, in the order in which it is searched.
FINDERS = {
    OWN: _own_files,
    MANYLANGS: manylangs_files,
    HDF5: _hdf5_files,
    TASK: task_files,
    CHECKPOINT: _checkpoint_files,
}


def _pick(folder: Path) -> tuple[str, list[Path]]:
    """Return the format of the model in a folder, and its files."""
    if not folder.is_dir():
        hint = "; give the folder of its files, or both where options_file and weight_file are taken"
        found = f"a file{hint}" if folder.exists() else "nothing"
        raise CheckpointError(f"{folder}: wanted a folder with a model, or its .zip or .tar.gz, found {found}")
    for kind, find in FINDERS.items():
        if files := find(folder):
            return kind, files
    names = ", ".join(sorted(file.name for file in folder.iterdir())[:10]) or "nothing"
    raise CheckpointError(f"{folder}: wanted {CONFIG} and {WEIGHTS}, or {OPTIONS} and a *.hdf5, found {names}")


def _load(kind: str, files: list[Path], prefix: str | None) -> tuple[State, ElmoOptions]:
    """Read a model of a format; files: as its finder returns them or, of a pair, options, weights and softmax."""
    if prefix is not None and kind not in (TASK, STATE):
        raise CheckpointError(
            f"prefix chooses one of several biLMs in an AllenNLP model; {files[1]} is no such model; leave prefix out"
        )
    if kind == OWN:
        return load_folder(files[0].parent)
    if kind == MANYLANGS:
        return read_manylangs(files[0].parent)
    if kind == TASK:
        is_pair = files[0].suffix == ".json"
        return read_task_model(files[is_pair], files[0] if is_pair else None, prefix)
    options = read_options(files[0])
    if kind == STATE:
        return read_allennlp_state(files[1], options, prefix=prefix), options
    if kind == CHECKPOINT:
        return read_bilm_checkpoint(files[1], options), options
    return read_bilm_hdf5(files[1], options, softmax_file=next(iter(files[2:]), None)), options
