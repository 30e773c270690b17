"""A pretrained model from the options --model, --options_file, --weight_file, --softmax_file, --prefix, --precision."""

import dataclasses
import os
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError

# The shared options that name a pretrained model in one of two ways, and one of several in an archive; its precision.
NAMES = ("model", "options_file", "weight_file", "prefix")
OPTIONS = (*NAMES, "precision")


def resolve(arguments: Any, default: str | None = None) -> None:
    """Sets --model, or --save_dir, to the folder with the model; prints it if it is a checkpoint of an unfinished run.

    default: the model that comes with the package which is taken, and named in a line, if no option names one. Raises
    ElmoFastError unless the options name one model, and files that exist.
    """
    if default is not None and not is_named(arguments):
        arguments.model = default
        _common.set_up_logging(arguments)
        _common.logger().info("model  %s, which comes with elmo_fast; --model names another", default)
    option, pair = _option(arguments), (arguments.options_file, arguments.weight_file)
    model, softmax = getattr(arguments, option), getattr(arguments, "softmax_file", None)
    if (model is None) == (pair == (None, None)) or (model is None and None in pair):
        raise ElmoFastError(
            "name a model with --model FOLDER (or an archive of it), or with --options_file and --weight_file; "
            f"got --{option} {model}, --options_file {pair[0]}, --weight_file {pair[1]}"
        )
    if model is not None and "://" not in model and not os.path.exists(model):
        from elmo_fast.checkpoints import bundled_folder

        if (own := bundled_folder(model)) is not None:
            model = os.fspath(own)
            setattr(arguments, option, model)
    if model is not None and softmax is not None:
        raise ElmoFastError(
            f"--softmax_file needs --options_file and --weight_file; a folder (--{option} {model}) has its own, named "
            "softmax.hdf5"
        )
    files = {option: model, "options_file": pair[0], "weight_file": pair[1], "softmax_file": softmax}
    for name, path in files.items():
        if path is not None and "://" not in path and not os.path.exists(path):
            from elmo_fast.checkpoints import no_model

            wanted = "the folder or the archive of a model" if name == option else "a file"
            raise ElmoFastError(f"--{name} must be {wanted}; {no_model(path)}")
    if model is not None:
        from elmo_fast.checkpoints import model_files

        folder = os.fspath(model_files(model)[0].parent)
        if os.path.isdir(model) and not os.path.samefile(folder, model):
            _common.set_up_logging(arguments)
            _common.logger().info("model  %s, the newest checkpoint of an unfinished run", folder)
            setattr(arguments, option, folder)


def _option(arguments: Any) -> str:
    """The option that names the model's folder: --save_dir if it is given, which is eval's other name for --model."""
    return "model" if getattr(arguments, "save_dir", None) is None else "save_dir"


def is_named(arguments: Any) -> bool:
    """Whether any of the options that name a model is given."""
    return any(getattr(arguments, name) is not None for name in NAMES)


def load_state(arguments: Any) -> tuple[Any, Any]:
    """The state and the options of the model that the options name."""
    from elmo_fast.checkpoints import load_checkpoint

    model = getattr(arguments, _option(arguments))
    files = (model, arguments.options_file, arguments.weight_file, getattr(arguments, "softmax_file", None))
    return load_checkpoint(*files, prefix=arguments.prefix)


def tokenizer_of(arguments: Any) -> str | None:
    """The tokenizer that --tokenizer names, or the one stored with the model; None splits at white space."""
    from elmo_fast.checkpoints import pretrained_folder, read_options, stored_tokenizer

    if arguments.tokenizer is not None:
        return arguments.tokenizer
    if arguments.options_file is not None:
        return read_options(arguments.options_file).tokenizer
    return stored_tokenizer(pretrained_folder(getattr(arguments, _option(arguments))))


def load_embedder(arguments: Any, *, stateful: bool = False) -> Any:
    """The ElmoEmbedder of the model that the options name, on --device; applies the common options."""
    device = _common.set_up(arguments)
    from elmo_fast.modules import ElmoEmbedder

    _common.leave_busy_processors(arguments)
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
    """A layer from an option: a number if it is one, else a name."""
    return int(text) if text.isdecimal() else text
