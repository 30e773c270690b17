"""The registered ops called by themselves, past the public functions' checks: a wrong argument is named."""

import pytest
import torch

from elmo_fast.ops import _native, huffman_tree

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
ops = torch.ops.elmo_fast
N, D, V = 4, 3, 9


def numbers(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def words(*shape, dtype=torch.int64):
    return torch.zeros(shape, dtype=dtype)


first, nodes, codes, longest = huffman_tree(torch.arange(V))
RATE = torch.tensor(0.1)
PATHS = {"hidden": numbers(N, D), "targets": words(N), "weight": numbers(V - 1, D)}
TABLE = {"hidden": numbers(N, D), "targets": words(N), "weight": numbers(V, D), "bias": numbers(V)}
SAMPLED = TABLE | {"samples": words(2), "sparse": False}
OF_SAMPLE = {
    "grad": numbers(N), "ids": words(N + 2), "hidden": numbers(N, D), "weight": numbers(V, D), "sparse": False,
}  # fmt: skip
CHARACTERS = {"ids": words(N, 5), "embedding": numbers(6, D), "weights": [numbers(2, D, 2)]}
LSTM = {
    "inputs": [numbers(N, 5, D)], "weight_ih": [numbers(8, D)], "weight_hh": [numbers(8, D)], "bias": [numbers(8)],
    "weight_hr": [numbers(D, 2)], "lengths": words(N), "h0": None, "c0": None, "masks": [], "reverse": [False],
    "cell_clip": 3.0, "projection_clip": 3.0, "residual": False, "precision": "float32", "save": True,
}  # fmt: skip
LSTM_BACK = {
    "d_outputs": numbers(1, N, 5, D), "d_h": None, "d_c": None,
    **{name: value for name, value in LSTM.items() if name not in ("bias", "save")},
    "need_inputs": True, "need_weights": True, "need_h0": True,
}  # fmt: skip


def saved_steps(gates=(N * 5, 64), cells=(N * 5, 16), projections=(N * 5, D)):
    return {"saved": [numbers(1, 1, *gates), numbers(1, 1, *cells), numbers(1, *projections)]}


PRECISION = {"precision": "float32", "chunk_bytes": 1000}
GLOVE = {
    "rows": words(3, dtype=torch.int32), "columns": words(3, dtype=torch.int32), "values": numbers(3),
    "weights": [numbers(V, D), numbers(V, D), numbers(V), numbers(V)],
    "squares": [numbers(V, D), numbers(V, D), numbers(V), numbers(V)],
    "learning_rate": 0.1, "x_max": 100.0, "alpha": 0.75,
}  # fmt: skip


def saved_sample(*each, kept=(N, 2), words=N + 2):
    return [numbers(N, *each), numbers(*kept), numbers(words, D), numbers(words)]


# Good arguments of each op, and changes to them with their errors.
CASES = {
    "matmul": ({"a": numbers(2, 3), "b": numbers(3, 4), "precision": "float32"}, [
        ({"b": numbers(4, 4)}, r"matmul: b must have shape \[3, any\], Float; got shape \[4, 4\], Float"),
        ({"a": numbers(3)}, r"a must have shape \[any, any\], Float or Double; got shape \[3\]"),
        ({"precision": "int7"}, "precision must be one of float32, bfloat16, float16; got int7"),
    ]),
    "pack_weight": ({"weight": numbers(8, D), "layout": "gates", "precision": "float32"}, [
        ({"weight": numbers(8)}, r"weight must have shape \[any, any\], Float or Double; got shape \[8\]"),
        ({"layout": "filters"}, r"weight must have shape \[any, any, any\], Float or Double; got shape \[8, 3\]"),
        ({"layout": "highway"}, r"weight of highway must have shape \[2W, W\]; got \[8, 3\]"),
        ({"weight": numbers(6, D)}, r"weight of gates must have shape \[4H, K\]; got \[6, 3\]"),
        ({"layout": "other"}, "layout must be plain, filters, highway or gates; got other"),
        ({"precision": "half"}, "precision must be one of"),
    ]),
    "adagrad_rows_": (
        {"table": numbers(V, D), "accumulator": numbers(V, D), "ids": torch.tensor([2, 5]), "rows": numbers(2, D),
         "positions": None, "learning_rate": RATE, "scale": None},
        [
            ({"positions": words(2)}, "in the order of distinct ids, without positions"),
            ({"table": numbers(), "accumulator": numbers()}, "table must have rows"),
            ({"ids": torch.tensor([2, V])}, "ids must lie from 0 to 8; got 2 to 9"),
            ({"ids": torch.tensor([-1, 2])}, "ids must lie from 0 to 8; got -1 to 2"),
            ({"ids": torch.tensor([2, 2])}, "ids must rise, none twice"),
            ({"ids": torch.tensor([3, 2])}, "ids must rise, none twice"),
            ({"ids": words(2, dtype=torch.int32)}, r"ids must have shape \[any\], Long"),
            ({"rows": numbers(3, D)}, r"rows must have shape \[2, 3\], Float; got shape \[3, 3\]"),
            ({"rows": numbers(2, D + 1)}, r"rows must have shape \[2, 3\], Float"),
            ({"table": numbers(D, V).t()}, "table must be contiguous"),
            ({"accumulator": numbers(V)}, r"table's accumulator must have shape \[9, 3\]"),
        ],
    ),
    "char_cnn": (CHARACTERS | {"biases": [numbers(2)], "count": None, "tanh": False, "precision": "float32",
                               "save": True}, [
        ({"count": words()}, "count is of GPUs"),
        ({"biases": []}, "biases must be one per width, 1; got 0"),
        ({"biases": [numbers(3)]}, r"biases must have shape \[2\]"),
        ({"weights": [numbers(2, D, 6)]}, "the width of weights must be from 1 to 5, the slots of ids; got 6"),
        ({"weights": [numbers(2, 4, 2)]}, r"weights\[0\] must have shape \[any, 3, any\]"),
        ({"weights": [], "biases": []}, "weights must hold at least one tensor"),
        ({"ids": words(N)}, r"ids must have shape \[any, any\]"),
        ({"ids": words(N, 2**15)}, "ids must have at most 32767 slots; got 32768"),
        ({"ids": words(N, 5) + 6}, "ids must lie from 0 to 5"),
    ]),
    "char_cnn_backward": (
        {"grad": numbers(N, 2), "features": numbers(N, 2), "saved": [words(N, 2, dtype=torch.int16)], **CHARACTERS,
         "biases": [numbers(2)], "count": None, "tanh": False, "precision": "float32", "need_embedding": True,
         "need_weights": True},
        [
            ({"saved": [words(N, 2, dtype=torch.int16) + 4]}, "winners must lie from 0 to 3; got 4 to 4"),
            ({"saved": [words(N, 2, dtype=torch.int16) - 1]}, "winners must lie from 0 to 3"),
            ({"saved": [words(N, 1, dtype=torch.int16)]}, r"winners must have shape \[4, 2\]"),
            ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
            ({"grad": numbers(N, 3)}, r"grad must have shape \[4, 2\]"),
            ({"precision": "half"}, "precision must be one of"),
        ],
    ),
    "highway": (
        {"x": numbers(N, D), "weights": [numbers(6, D)], "biases": [numbers(6)], "projection_weight": numbers(2, D),
         "projection_bias": numbers(2), "count": None, "precision": "float32", "save": True},
        [
            ({"count": words()}, "count is of GPUs"),
            ({"x": numbers(N, 4)}, r"weights\[0\] must have shape \[8, 4\], Float; got shape \[6, 3\], Float"),
            ({"biases": []}, "biases must be one per layer, 1; got 0"),
            ({"biases": [numbers(5)]}, r"biases\[0\] must have shape \[6\]"),
            ({"weights": [numbers(6, D, dtype=torch.float64)]}, "got shape .*, Double"),
            ({"projection_weight": numbers(2, 4)}, r"projection_weight must have shape \[any, 3\]"),
            ({"projection_bias": numbers(3)}, r"projection_bias must have shape \[2\]"),
            ({"packed": []}, "packed must hold what pack_weight returned for each weight with the same precision, 1"),
            ({"packed": [numbers(1, 4, D, 16, 1)]}, "1 tensor each; got 1 for at least 2 weights"),
            ({"packed": [numbers(1, 4, 4, 16, 1)] * 2}, r"packed must have shape \[1, 4, 3, 16, 1\], Float; got .*4"),
            ({"packed": [numbers(1, 4, 3, 16, 1, dtype=torch.float64)] * 2}, "packed must have shape .* Double"),
            ({"packed": [numbers(1, 4, D, 16, 2)[..., :1]] * 2}, "packed must be contiguous"),
            ({"packed": [numbers(1)] * 2, "save": False, "precision": "int8"}, "3 tensors each; got 2 for at least 1"),
            ({"packed": [numbers(1)] * 6, "save": False, "precision": "int8"}, "packed must have shape .*, Char"),
        ],
    ),
    "highway_backward": (
        {"grad": numbers(N, 2), "x": numbers(N, D), "saved": [numbers(1, 3, N, D)], "weights": [numbers(6, D)],
         "projection_weight": numbers(2, D), "count": None, "precision": "float32", "need_x": True,
         "need_weights": True},
        [
            ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
            ({"saved": [numbers(1, 3, 2, D)]}, r"saved must have shape \[1, 3, 4, 3\]"),
            ({"grad": numbers(N, D)}, r"grad must have shape \[4, 2\]"),
        ],
    ),
    "projected_lstm": (LSTM, [
        ({"inputs": []}, "inputs must hold one tensor for each direction; got none"),
        ({"reverse": [False, True]}, "one entry for each of 1 directions"),
        ({"weight_hh": [numbers(7, D)]}, r"weight_ih\[0\] must have shape \[4, 3\]"),
        ({"weight_ih": [numbers(8, 2)]}, r"weight_ih\[0\] must have shape \[8, 3\]"),
        ({"weight_hr": [numbers(2, 2)]}, r"weight_hr\[0\] must have shape \[3, 2\]"),
        ({"weight_hr": []}, "without weight_hr, D must equal H; got 3 and 2"),
        ({"bias": [numbers(4)]}, r"bias\[0\] must have shape \[8\]"),
        ({"lengths": words(3)}, r"lengths must have shape \[4\]"),
        ({"lengths": words(N) + 6}, r"lengths must lie in 0..T=5; got 6"),
        ({"h0": numbers(1, N, 2)}, r"h0 must have shape \[1, 4, 3\]"),
        ({"c0": numbers(N, 2)}, r"c0 must have shape \[1, 4, 2\]"),
        ({"masks": [numbers(D)]}, r"masks\[0\] must have shape \[4, 3\]"),
        (
            {"inputs": [numbers(N, 5, 2)], "weight_ih": [numbers(8, 2)], "residual": True},
            "inputs as wide as outputs; got 2 and 3",
        ),
    ]),
    "projected_lstm_backward": (LSTM_BACK | saved_steps(), [
        ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
        ({"saved": [numbers(1)] * 7}, "saved must hold what the forward pass returned with save=True, 3 in all; got 7"),
        (saved_steps(gates=(3, 64)), r"gates must have shape \[1, 1, 20, 64\]"),
        (saved_steps(cells=(20, 2)), r"cells must have shape \[1, 1, 20, 16\]"),
        (saved_steps(projections=(0, D)), r"projections must have shape \[1, 20, 3\]"),
        ({"d_outputs": numbers(1, N, D)}, r"d_outputs must have shape \[1, 4, 5, 3\]"),
        ({"d_c": numbers(1, N, D)}, r"d_c must have shape \[1, 4, 2\]"),
    ]),
    "log_uniform_sample": ({"num_samples": 2, "num_words": 9, "seed": 1, "offset": words()}, [
        ({"offset": words(2)}, "offset must be one int64"),
        ({"offset": words(dtype=torch.int32)}, "offset must be one int64"),
        ({"num_words": 0, "num_samples": 0}, "num_words must be from 1"),
        ({"num_samples": 10}, "num_samples from 0 to num_words; got 9 and 10"),
        ({"num_samples": -1}, "got 9 and -1"),
    ]),
    "sampled_softmax": (
        SAMPLED | PRECISION | {"tries": words(), "correction": "tensorflow", "log_expected": numbers(N + 2),
                               "save": True},
        [
            ({"samples": words(2) + V}, "samples must lie from 0 to 8; got 9 to 9"),
            ({"targets": words(N) - 1}, "targets must lie from 0 to 8; got -1 to -1"),
            ({"targets": words(N - 1)}, r"targets must have shape \[4\], Long"),
            ({"weight": numbers(V, 2)}, r"weight must have shape \[any, 3\]"),
            ({"bias": numbers(2)}, r"bias must have shape \[9\]"),
            ({"log_expected": numbers(N)}, r"log_expected must have shape \[6\]"),
            ({"log_expected": None}, "takes ln Q of all words as log_expected"),
            ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
        ],
    ),
    "sampled_softmax_backward": (
        OF_SAMPLE | PRECISION | {"losses": numbers(N), "saved": saved_sample(2)},
        [
            ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
            ({"saved": saved_sample(2, kept=(N, 3))}, r"saved\[1\] must have shape \[4, 2\]"),
            ({"saved": saved_sample()}, r"saved\[0\] must have shape \[4, 2\]"),
            ({"saved": saved_sample(2, words=5)}, r"saved\[2\] must have shape \[6, 3\]"),
            ({"ids": words(3)}, "ids must begin with one for each of hidden's 4 rows; got 3"),
            ({"grad": numbers(5)}, r"grad must have shape \[4\]"),
        ],
    ),
    "negative_sampling": (SAMPLED | {"log_noise": None, "negatives": 1.0, **PRECISION, "save": True}, [
        ({"log_noise": numbers(2)}, r"log_noise must have shape \[9\]"),
        ({"samples": words(0)}, "samples must hold at least one word"),
    ]),
    "negative_sampling_backward": (
        OF_SAMPLE | PRECISION | {"log_noise": None, "negatives": 1.0, "saved": saved_sample()},
        [
            ({"saved": saved_sample(kept=(2, 2))}, r"saved\[1\] must have shape \[4, 2\]"),
            ({"saved": saved_sample(2)}, r"saved\[0\] must have shape \[4\]"),
        ],
    ),
    "glove": (GLOVE, [
        ({"rows": words(3, dtype=torch.int32) + 9}, "rows must lie from 0 to 8; got 9 to 9"),
        ({"columns": words(3, dtype=torch.int32) - 1}, "columns must lie from 0 to 8"),
        ({"columns": words(2, dtype=torch.int32)}, r"columns must have shape \[3\]"),
        *(
            ({name: torch.cat([GLOVE[name]] * 2)[::2]}, f"{name} must be contiguous")
            for name in ("rows", "columns", "values")
        ),
        ({"weights": GLOVE["weights"][:3]}, "weights and squares must be 4 tensors each"),
        ({"squares": [numbers(V, D), numbers(V, 2), numbers(V), numbers(V)]}, r"must have shape \[9, 3\]"),
        ({"weights": [numbers(D, V).t(), *GLOVE["weights"][1:]]}, "weights and squares must be contiguous"),
    ]),
    "full_softmax": (TABLE | PRECISION | {"save": True}, [
        ({"weight": numbers(0, D), "bias": numbers(0)}, "weight must hold at least one word"),
        ({"targets": words(N) + 9}, "targets must lie from 0 to 8; got 9 to 9"),
        ({"bias": numbers(2)}, r"bias must have shape \[9\]"),
        ({"chunk_bytes": -1}, "chunk_bytes must be at least 1"),
    ]),
    "full_softmax_backward": (
        {"grad": numbers(N), **TABLE, "losses": numbers(N), "saved": [numbers(N, 2)], **PRECISION},
        [
            ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
            ({"saved": [numbers(N)]}, r"log_sums must have shape \[4, 2\]"),
            ({"targets": words(N) - 1}, "targets must lie from 0"),
        ],
    ),
    "hierarchical_softmax": (
        PATHS | {"bias": numbers(V - 1), "first": first, "nodes": nodes, "codes": codes, "longest": longest,
                 "precision": "float32", "sparse": False, "save": True},
        [
            ({"targets": words(N) + V}, "target 9 is no word of the tree's 9"),
            ({"codes": codes[1:]}, r"codes must have shape"),
            ({"nodes": nodes[:1], "codes": codes[:1]}, "the path of word 0 leaves the tree"),
            ({"nodes": nodes + V}, "node .* of a tree with 8 inner nodes"),
            ({"longest": 0}, "the path of word 0 leaves the tree"),
            ({"first": first - 1}, "the path of word 0 leaves the tree"),
            ({"bias": numbers(V)}, r"bias must have shape \[8\]"),
            ({"first": words(0)}, "first must have V \\+ 1 places; got none"),
            ({"first": first.int()}, "first must have shape .*, Long"),
            ({"nodes": nodes.int()}, "nodes must have shape .*, Long"),
            ({"targets": words(N).int()}, "targets must have shape .*, Long"),
        ],
    ),
    "hierarchical_softmax_backward": (
        {"grad": numbers(N), **PATHS, "saved": [numbers(N, longest)], "first": first, "nodes": nodes,
         "precision": "float32", "sparse": False},
        [
            ({"targets": words(N) + V}, "target 9 is no word"),
            ({"nodes": nodes + V}, "node .* of a tree with 8 inner nodes"),
            ({"nodes": nodes[:1]}, "the path of word 0 leaves the tree"),
            ({"saved": []}, "saved must hold what the forward pass returned with save=True, . in all; got 0"),
            ({"saved": [numbers(N, 1)]}, "the path of word 0 leaves the tree"),
            ({"grad": numbers(2)}, r"grad must have shape \[4\]"),
        ],
    ),
}  # fmt: skip


def copied(arguments):
    """Some ops write to their arguments."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def test_every_op_of_the_cpu_is_here():
    registered = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("elmo_fast::")
    }
    of_gpus = {"scalar_mix", "gather_rows", *(f"{name}_backward" for name in ("scalar_mix", "gather_rows"))}
    of_gpus |= {"adagrad_", "square_norm", "merged_square_norm", "padded_unique_rows"}
    assert set(CASES) == registered - of_gpus


@pytest.mark.parametrize("op", CASES)
def test_good_arguments_are_taken(op):
    getattr(ops, op)(**copied(CASES[op][0]))


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [(op, change, message) for op, (_, cases) in CASES.items() for change, message in cases],
)
def test_a_wrong_argument_is_an_error_that_names_it(op, change, message):
    with pytest.raises((ValueError, IndexError), match=message):
        getattr(ops, op)(**copied(CASES[op][0]) | change)
