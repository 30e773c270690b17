"""bilm-tf's own checkpoints (`model.ckpt-N.index`, `.data-*`): weights, softmax and AdaGrad's sums.

Their variables are those of bilm-tf's training graph; all GPUs share them:

    lm/char_embed, lm/CNN/W_cnn_{i}, lm/CNN_high_{j}/W_carry ...       bilm_layout's names and shapes after `lm/`
    lm/RNN_{d}/rnn/multi_rnn_cell/cell_{l}/lstm_cell/kernel, bias      W_0, B; a single layer has no multi_rnn_cell
                                       .../lstm_cell/projection/kernel    W_P_0
    lm/softmax/W, lm/softmax/b
    NAME/Adagrad                                                       the sum of squares of NAME's gradients
    global_step, train_perplexity                                      not of the model
"""

import os
import re
from pathlib import Path

import torch

from ..errors import read_failures_named, refuse
from .bilm_layout import bilm_shapes, unpacked
from .options import ElmoOptions
from .state import State, check_shapes, float32
from .tensor_bundle import INDEX, read_index, read_variable

_CELL = re.compile(r"RNN_([01])/rnn/(?:multi_rnn_cell/cell_(\d+)/)?lstm_cell/(.+)")
# TensorFlow 1.2 and newer, and older.
_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_PARTS |= {"weights": "W_0", "biases": "B", "projection/weights": "W_P_0"}
_ROOTS = ("CNN", "RNN_", "char_embed", "embedding", "softmax")
_NAMED = re.compile(r'^\s*model_checkpoint_path:\s*"(?:.*[/\\])?([^"/\\]+)"', re.MULTILINE)


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the index of the checkpoint that the file `checkpoint` names or, without it, of the highest step.

    Behind it its shards; nothing if there is no index. Raises: CheckpointError naming what is missing.
    """
    record = folder / "checkpoint"
    indices = sorted(folder.glob(f"*{INDEX}"), key=lambda file: [int(n) for n in re.findall(r"-(\d+)\.", file.name)])
    if not indices:
        return []
    index = indices[-1]
    if record.is_file():
        with read_failures_named(record):
            named = _NAMED.search(record.read_text(encoding="utf-8", errors="replace"))
        if named is None or (index := folder / f"{named[1]}{INDEX}") not in indices:
            what = "no model_checkpoint_path" if named is None else named[1]
            refuse(record, [f"wanted the name of a checkpoint in its folder ({indices[-1].name}), found {what}"])
    bundle = read_index(index)
    return [index, *(bundle.shard(number) for number in range(bundle.shards))]


def read_bilm_checkpoint(index: str | os.PathLike[str], options: ElmoOptions) -> State:
    """Return the state in bilm-tf's checkpoint. Raises: CheckpointError naming the file and every wrong tensor."""
    return _state(index, options, slot="")


def read_adagrad_sums(index: str | os.PathLike[str], options: ElmoOptions) -> State:
    """AdaGrad's sums in bilm-tf's checkpoint, in the names and shapes of the state; empty if it has none.

    The row of the padding, which bilm-tf has not, is 1, as bilm-tf's sums are before the first step.
    Raises: CheckpointError as read_bilm_checkpoint, also where a sum is not above 0.
    """
    sums = _state(index, options, slot="/Adagrad")
    if bad := [name for name, tensor in sums.items() if not (tensor > 0).all()]:
        refuse(index, [f"{name}: wanted sums of squares above 0" for name in bad])
    return sums


def _state(index: str | os.PathLike[str], options: ElmoOptions, slot: str) -> State:
    """Return the state of the weights, or of one of their slots; empty if there are no tensors of that slot."""
    bundle = read_index(index)
    names = {}  # bilm_layout's -> the variable's
    for name in bundle.entries:
        dataset = name.removesuffix(slot).removeprefix("lm/")
        if (cell := _CELL.fullmatch(dataset)) is not None:
            layer, part = cell[2] or 0, _PARTS.get(cell[3], cell[3])
            dataset = f"RNN_{cell[1]}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{part}"
        of_another = name.rpartition("/")[0] in bundle.entries
        if name.startswith("lm/") and dataset.startswith(_ROOTS) and name.endswith(slot) and of_another == bool(slot):
            names[dataset] = name
    if slot and not names:
        return {}
    stored = {dataset: bundle.entries[variable] for dataset, variable in names.items()}
    expected = bilm_shapes(options, stored, index)
    check_shapes(index, expected, stored, [name for name in stored if name not in expected])
    arrays = {name: float32(torch.from_numpy(read_variable(bundle, names[name]))) for name in expected}
    return unpacked(arrays, options, index, sums=bool(slot))
