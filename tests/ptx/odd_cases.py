"""More calls of the ops, in which masks are needed that those in cases.py can do without: sizes that fill no tile,
steps that no row has, options. What they move stands in no table, and of their kernels only masks are taken away."""

import functools

import torch

from tests.ptx import cases

lstm = functools.partial(cases.run_projected_lstm, 3, 21, 27)

CASES = {
    "highway_odd": functools.partial(cases.run_highway, 37, 37, 2),
    "highway_unprojected": functools.partial(cases.run_highway, 9, 21, 1, 0, "float32"),
    # Filters of more numbers than are summed at once, and no whole number of times as many.
    "char_cnn_wide": functools.partial(cases.run_char_cnn, 9, 20, ((2, 3), (18, 5))),
    # A step that no row has.
    "projected_lstm_ended": functools.partial(lstm, lengths=torch.ones(3, dtype=torch.int64)),
    "projected_lstm_residual": functools.partial(
        lstm, masked=True, residual=True, width=21, lengths=torch.tensor([2, 1, 0])
    ),
    "projected_lstm_unprojected": functools.partial(cases.run_projected_lstm, 3, 27, 27, masked=True),
    # The inputs' product is a kernel of ours.
    "projected_lstm_bfloat16": functools.partial(lstm, "bfloat16"),
    # More layers than a launch takes, more mixes than one of backward.
    "scalar_mix_deep": functools.partial(cases.run_scalar_mix, count=6, dropout=0.3),
    # Each word is drawn.
    "sampled_softmax_odd": functools.partial(cases.run_sampled_softmax, 37, 33, 71, 71),
    # In several chunks of words.
    "full_softmax_odd": functools.partial(cases.run_full_softmax, 37, 33, 271, chunk_bytes=1),
    "negative_sampling_noise": functools.partial(cases.run_negative_sampling, 37, 33, 71, 61, noise=True),
}
"""name -> call"""
