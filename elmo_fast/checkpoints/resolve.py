"""Finds the files of a model in a folder of any format, in that of a run, or in an archive."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import CheckpointError
from ..manifest import MANIFEST, settle
from .allennlp_archive import ARCHIVED, task_weights
from .archives import archives_named, is_archive, unpacked
from .bilm_checkpoint import newest_checkpoint, shards_of
from .manylangs import is_manylangs, manylangs_files
from .options import CONFIG
from .safetensors_folder import WEIGHTS, read_config
from .steps import CHECKPOINTS, saved_steps

PathLike = str | os.PathLike[str]
OPTIONS, SOFTMAX, VOCABULARY = "options.json", "softmax.hdf5", "vocab.txt"
# The second is that of the NLPL repository.
VOCABULARIES = (VOCABULARY, f"{VOCABULARY}.gz")
# Published names: elmo_2x4096_512_2048cnn_2xhighway_options.json beside elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5.
PUBLISHED = ("*_options.json", "*_weights.hdf5")


def is_model(path: PathLike) -> bool:
    """Whether `path` can name a model by itself: it is a folder or an archive, not one file of a pair."""
    return os.path.isdir(path) or is_archive(path)


def model_folder(path: PathLike) -> Path:
    """`path` itself or, if a run in it is unfinished or has continued since, the newest of its checkpoints.

    path: a folder, or an archive (.zip, .tar.gz, .tgz, .tar) of one, which is unpacked into a temporary folder.
    """
    folder = opened(path)
    saved = saved_steps(folder)
    settle(folder)
    if not saved or _options_in(folder) or ((folder / CONFIG).exists() and _step_of(folder) >= saved[-1][0]):
        return folder
    return saved[-1][1]


def opened(path: PathLike) -> Path:
    """`path` itself or, if it is an archive, the folder that it was unpacked to."""
    return unpacked(path) if is_archive(path) else Path(path)


def _step_of(folder: Path) -> int:
    """The training step of the model in a folder."""
    extra = read_config(folder).get("extra")
    step = extra.get("pretraining_step") if isinstance(extra, dict) else None
    return step if isinstance(step, int) else -1


@archives_named()
def file_beside(folder: PathLike, names: Sequence[str] = VOCABULARIES) -> Path | None:
    """The first of the files in a model's folder or archive or, if that is a checkpoint, in the run's folder; None if
    there is none."""
    place = opened(folder).resolve()
    run = [place.parent.parent] if place.parent.name == CHECKPOINTS else []
    return next((file for at in (place, *run) for name in names if (file := at / name).is_file()), None)


@archives_named()
def model_files(path: PathLike) -> list[Path]:
    """The files of the model in a folder or an archive: config.json, model.safetensors and, if present, manifest.json;
    or the options (options.json, or the published *_options.json), the HDF5 weights and, if present, softmax.hdf5;
    or the options, model.ckpt-N.index and its shards, of a run of bilm-tf without HDF5 weights (the checkpoint that the
    file `checkpoint` names, or the newest); or the weights (weights.th, best.th), config.json and options
    (fta/*.options_file) of an AllenNLP model that contains an ELMo; or those of ELMoForManyLangs, token_embedder.pkl
    first.

    path: the folder or archive, or that of a run, which means its newest checkpoint if the run is unfinished. Weights
    have the name of the options, or are model.hdf5, or the only *.hdf5 file.
    Raises: CheckpointError if the folder contains no model, or several.
    """
    folder = model_folder(path)
    if not folder.is_dir():
        hint = "; for two files, give options_file and weight_file" if folder.exists() else ""
        found = "a file" if hint else "nothing"
        raise CheckpointError(f"{folder}: wanted a folder with a model, or its .zip or .tar.gz, found {found}{hint}")
    if is_manylangs(folder) and not (folder / WEIGHTS).exists():
        return manylangs_files(folder)
    pairs = _pairs(folder)
    if not pairs and not (folder / WEIGHTS).exists() and (task := task_weights(folder)) is not None:
        return [task, folder / CONFIG, *sorted((folder / ARCHIVED).glob("*.options_file"))]
    if (folder / CONFIG).exists() and ((folder / WEIGHTS).exists() or not pairs):
        return [folder / CONFIG, folder / WEIGHTS, *_where_there(folder / MANIFEST)]
    if len(pairs) > 1:
        names = "; ".join(" with ".join(file.name for file in pair) for pair in pairs)
        raise CheckpointError(
            f"{folder} contains several models: {names}; choose one with options_file and weight_file"
        )
    options = _options_in(folder)
    if not pairs and len(options) == 1 and (index := newest_checkpoint(folder)) is not None:
        return [*options, index, *shards_of(index)]
    if not pairs:
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:10]) or "nothing"
        raise CheckpointError(f"{folder}: wanted {CONFIG} and {WEIGHTS}, or {OPTIONS} and a *.hdf5, found {names}")
    return [*pairs[0], *_where_there(folder / SOFTMAX)]


def _options_in(folder: Path) -> list[Path]:
    return [file for file in (folder / OPTIONS, *sorted(folder.glob(PUBLISHED[0]))) if file.exists()]


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Options and weights with matching names; if there are none, all combinations."""
    options = _options_in(folder)
    named = [(file, weights) for file in options if (weights := _weights_named_as(file)) is not None]
    others = [file for file in sorted(folder.glob("*.hdf5")) if file.name != SOFTMAX]
    return named or [(file, weights) for file in options for weights in others]


def _weights_named_as(options: Path) -> Path | None:
    names = (["model.hdf5"] if options.name == OPTIONS else []) + [options.name.replace(OPTIONS, "weights.hdf5")]
    return next((file for name in names if (file := options.with_name(name)).exists()), None)


def _where_there(file: Path) -> list[Path]:
    return [file] if file.exists() else []
