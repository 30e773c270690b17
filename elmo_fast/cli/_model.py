"""A pretrained model from the options --model, --options_file, --weight_file, --softmax_file, --prefix, --precision."""

import os
import re
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError

# The shared options that name a pretrained model in one of two ways, and one of several in an archive; its precision.
NAMES = ("model", "options_file", "weight_file", "prefix")
OPTIONS = (*NAMES, "precision")

_CHECK = "check the spelling and the current folder"


def resolve(arguments: Any) -> None:
    """Sets --model to the folder with the model; prints it if that is a checkpoint of an unfinished run.

    Raises ElmoFastError unless the options name one model, and files that exist.
    """
    pair = (arguments.options_file, arguments.weight_file)
    softmax = getattr(arguments, "softmax_file", None)
    if (arguments.model is None) == (pair == (None, None)) or (arguments.model is None and None in pair):
        raise ElmoFastError(
            "name a model with --model FOLDER (or an archive of it), or with --options_file and --weight_file; "
            f"got --model {arguments.model}, --options_file {pair[0]}, --weight_file {pair[1]}"
        )
    if arguments.model is not None and softmax is not None:
        raise ElmoFastError(
            f"--softmax_file needs --options_file and --weight_file; a folder (--model {arguments.model}) has its "
            "own, named softmax.hdf5"
        )
    files = {"--model": arguments.model, "--options_file": pair[0], "--weight_file": pair[1], "--softmax_file": softmax}
    for name, path in files.items():
        if path is not None and "://" not in path and not os.path.exists(path):
            wanted = "the folder or the archive of a model" if name == "--model" else "a file"
            named = name == "--model" and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*(@\S+)?", path)
            hint = f"download a model of that name from the hub with `elmo-fast download {path}`" if named else _CHECK
            raise ElmoFastError(f"{name} must be {wanted}; there is no {path!r}: {hint}")
    if arguments.model is not None:
        from elmo_fast.checkpoints import model_files

        folder = os.fspath(model_files(arguments.model)[0].parent)
        if os.path.isdir(arguments.model) and not os.path.samefile(folder, arguments.model):
            _common.set_up_logging(arguments)
            _common.logger().info("model  %s, the newest checkpoint of an unfinished run", folder)
            arguments.model = folder


def is_named(arguments: Any) -> bool:
    """Whether any of the options that name a model is given."""
    return any(getattr(arguments, name) is not None for name in NAMES)


def load_state(arguments: Any) -> tuple[Any, Any]:
    """The state and the options of the model that the options name."""
    from elmo_fast.checkpoints import load_checkpoint

    files = (arguments.model, arguments.options_file, arguments.weight_file, getattr(arguments, "softmax_file", None))
    return load_checkpoint(*files, prefix=arguments.prefix)


def load_embedder(arguments: Any, *, stateful: bool = False) -> Any:
    """The ElmoEmbedder of the model that the options name, on --device; applies the common options."""
    device = _common.set_up(arguments)
    from elmo_fast.modules import ElmoEmbedder

    _common.leave_busy_processors(arguments)
    return ElmoEmbedder(
        arguments.options_file or arguments.model,
        arguments.weight_file,
        cuda_device=-1 if device.type == "cpu" else device.index or 0,
        stateful=stateful,
        precision=arguments.precision,
        prefix=arguments.prefix,
    )


def layer_of(text: str) -> str | int:
    """A layer from an option: a number if it is one, else a name."""
    return int(text) if text.isdecimal() else text
