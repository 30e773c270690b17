"""The CPU's ops called past the public functions' checks, with anything wrong in any argument: C++ names it.

Good calls are those that the public functions make. Of each argument in turn rank, size, dtype, layout, values outside
their range and, of a list, the length are changed; what an op takes all the same is in `TAKEN`.
"""

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from elmo_fast import ops
from elmo_fast.ops import _dispatch, _native
from elmo_fast.static.glove import GloveWeights, glove_
from tests.ops.calls import ALL, CALLS, Recorded

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def copied(value):
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def others():
    """Call the ops that have no gradients."""
    numbers, ids = torch.ones(9, 3), torch.tensor([2, 5])
    ops.adagrad_rows_(numbers, numbers.clone(), ids, numbers[:2], 0.1, torch.tensor(0.5), backend="native")
    ops.log_uniform_sample(2, 9, seed=1, backend="native")
    places = torch.tensor([0, 8, 3], dtype=torch.int32)
    weights, squares = (GloveWeights(torch.ones(9, 3), torch.ones(9, 3), torch.ones(9), torch.ones(9)) for _ in "wa")
    glove_(places, places.flip(0), torch.ones(3), weights, squares, backend="native")
    torch.ops.elmo_fast.matmul(torch.ones(2, 3), torch.ones(3, 4), "float32")
    torch.ops.elmo_fast.pack_weight(torch.ones(8, 3), "gates", "float32")


def good_calls():
    with Recorded() as recorded:
        others()
        for name in (*CALLS, "projected_lstm state", *(each for each in ALL if each.endswith("sparse"))):
            if "native" in _dispatch.backends_of(ALL[name].op):
                ALL[name].results(ALL[name].tensors(), backend="native")
    named = {
        op._opname: dict(zip((each.name for each in op._schema.arguments), arguments, strict=False))
        for op, arguments, _ in recorded.calls
        if op.namespace == "elmo_fast"
    }
    return {op: copied(arguments) for op, arguments in named.items()}


GOOD = good_calls() if _native.C is not None else {}


def changes(value):
    """(what was changed, the changed value) of an argument."""
    if isinstance(value, str):
        yield "unknown", "int7"
    elif isinstance(value, int) and not isinstance(value, bool):
        yield "negative", -1
    elif isinstance(value, torch.Tensor):
        yield "rank", value[None]
        if value.dim():
            yield "longer", torch.cat([value, value[:1]])
            yield "strided", torch.stack([value, value], -1)[..., 0]
        if value.dim() > 1:
            yield "wider", torch.cat([value, value[..., :1]], -1)
        floating = value.is_floating_point()
        yield (
            "dtype",
            value.to({torch.float32: torch.float64, torch.float64: torch.float32}.get(value.dtype, torch.int16)),
        )
        if not floating and value.dtype != torch.bool and value.numel():
            yield "negative", torch.full_like(value, -1)
            yield "large", torch.full_like(value, torch.iinfo(value.dtype).max)
    elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        yield "none", []
        yield "entry", [*value, value[0]]
        yield from ((name, [*value[:-1], changed]) for name, changed in changes(value[-1]))


# What is right as well: sizes that are free, any values, and arguments that the CPU or this call does not read.
OF_TABLE = {"weight": "rank longer wider dtype", "ids": "negative large"}  # of gradients that are dense
TAKEN = {
    "adagrad_rows_": {"learning_rate": "dtype"}, "matmul": {"a": "longer", "b": "wider"},
    "pack_weight": {"weight": "wider dtype"},
    "log_uniform_sample": {"seed": "negative", "offset": "rank negative large"},
    "char_cnn": {"ids": "longer wider", "embedding": "longer", "weights": "wider"},
    "char_cnn_backward": {"ids": "wider", "embedding": "longer", "saved": "dtype",
                          "biases": "none entry rank longer dtype"},
    "highway": {"x": "longer"},
    "highway_backward": {"biases": "none entry rank longer dtype", "projection_bias": "rank longer dtype"},
    "projected_lstm_backward": {"bias": "none entry rank longer dtype"},
    "sampled_softmax": {"tries": "rank dtype negative large", "correction": "unknown"},
    "sampled_softmax_backward": OF_TABLE, "negative_sampling": {"samples": "longer"},
    "negative_sampling_backward": OF_TABLE,
    "hierarchical_softmax": {"first": "longer", "codes": "negative large"},
    "hierarchical_softmax_backward": {"saved": "wider", "weight": "longer", "first": "longer", "nodes": "longer"},
}  # fmt: skip


# Messages that name no op: of all ops alike, and torch's own.
OF_ALL = "precision must be one of", "There were no tensor arguments"


def outcome(op, arguments):
    """The results and the arguments that were written, or the first line of the error."""
    arguments = copied(arguments)
    try:
        results = getattr(torch.ops.elmo_fast, op)(*arguments.values())
    except (ValueError, IndexError, NotImplementedError) as error:  # the last is torch's, where no tensor is left
        return str(error).splitlines()[0]
    return [each for each in tree_leaves([results, arguments]) if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("op", GOOD)
def test_a_wrong_argument_is_an_error_of_the_op(op):
    """Other strides are an error too, or change no result."""
    good, wrong = outcome(op, GOOD[op]), []
    assert not isinstance(good, str), good
    for name, value in GOOD[op].items():
        for what, changed in changes(value):
            actual = outcome(op, GOOD[op] | {name: changed})
            if isinstance(actual, str):
                wrong += [] if actual.startswith((op.removesuffix("_backward"), *OF_ALL)) else [actual]
            elif what == "strided":
                wrong += [] if all(map(torch.equal, actual, good)) else [f"{name}, strided: other results"]
            elif what not in TAKEN.get(op, {}).get(name, "").split():
                wrong.append(f"{name}, {what}: taken")
    assert wrong == []


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        ("char_cnn", {"count": torch.tensor(3)}, "count is of GPUs"),
        ("highway", {"count": torch.tensor(3)}, "count is of GPUs"),
        (
            "highway",
            {"packed": []},
            "packed must hold what pack_weight returned for each weight with the same precision",
        ),
        ("highway", {"packed": [torch.ones(1)] * 2}, "packed must have shape"),
        ("char_cnn", {"ids": torch.zeros(4, 2**15, dtype=torch.int64)}, "ids must have at most 32767 slots; got 32768"),
        ("adagrad_rows_", {"ids": torch.tensor([2, 2])}, "ids must rise, none twice"),
        ("adagrad_rows_", {"ids": torch.tensor([3, 2])}, "ids must rise, none twice"),
        ("projected_lstm", {"residual": True}, "inputs as wide as outputs; got 7 and 5"),
        ("projected_lstm", {"weight_hr": []}, "without weight_hr, D must equal H; got 5 and 6"),
        ("log_uniform_sample", {"num_samples": 10}, "num_samples from 0 to num_words; got 9 and 10"),
        ("full_softmax", {"weight": torch.ones(0, 5), "bias": torch.ones(0)}, "weight must hold at least one word"),
        ("full_softmax", {"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
        ("negative_sampling", {"samples": torch.zeros(0, dtype=torch.int64)}, "samples must hold at least one word"),
    ],
)
def test_what_only_one_op_refuses(op, change, message):
    assert message in outcome(op, GOOD[op] | change)


def test_every_op_of_the_cpu_is_here():
    registered = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("elmo_fast::")
    }
    of_gpus = {"scalar_mix", "gather_rows", *(f"{name}_backward" for name in ("scalar_mix", "gather_rows"))}
    of_gpus |= {"adagrad_", "square_norm", "merged_square_norm", "padded_unique_rows"}
    assert set(GOOD) == registered - of_gpus
