"""Ops: one folder each, its definition in plain torch next to its kernels.

Letters used in every docstring: B batch, T time, I input width, D projection, H cells, C characters (slots), E
character embedding, F filters, N rows (words), V vocabulary, S samples, L layers, M mixes, R directions run side by
side.
"""

# ruff: noqa: F401 - other rooms of the package call what is not in __all__
import os

import torch

from elmo_fast.ops._dispatch import BACKENDS, Choice, backend_for, explain, op_names
from elmo_fast.ops._packed import PackedWeights, refresh_weights
from elmo_fast.ops._precision import PRECISIONS, rounded
from elmo_fast.ops._sampling import AliasTable, alias_sample, alias_table
from elmo_fast.ops._table_rows import RowOrder, coalesced, row_order
from elmo_fast.ops.adagrad import adagrad_, adagrad_rows_, clip_scale, merged_square_norm, square_norm
from elmo_fast.ops.char_cnn import char_cnn
from elmo_fast.ops.hierarchical_softmax import HuffmanTree, hierarchical_softmax, huffman_tree
from elmo_fast.ops.highway import highway
from elmo_fast.ops.log_uniform_sample import expected_counts, log_expected_counts, log_uniform_sample
from elmo_fast.ops.projected_lstm import LSTMWeights, projected_lstm
from elmo_fast.ops.scalar_mix import scalar_mix
from elmo_fast.ops.unique_rows import gather_rows, ordered_unique_rows, unique_rows
from elmo_fast.ops.vocabulary_losses import full_softmax, negative_sampling, sampled_softmax

# What users call: these keep their meaning until 2.0.0, the other names imported here may go.
__all__ = [
    "BACKENDS",
    "PRECISIONS",
    "AliasTable",
    "Choice",
    "HuffmanTree",
    "LSTMWeights",
    "PackedWeights",
    "adagrad_",
    "adagrad_rows_",
    "alias_sample",
    "alias_table",
    "char_cnn",
    "expected_counts",
    "explain",
    "full_softmax",
    "gather_rows",
    "hierarchical_softmax",
    "highway",
    "huffman_tree",
    "log_expected_counts",
    "log_uniform_sample",
    "negative_sampling",
    "op_names",
    "projected_lstm",
    "refresh_weights",
    "sampled_softmax",
    "scalar_mix",
    "unique_rows",
]

# The threads of OpenMP do not survive a fork, and a child would wait for them for ever. One thread needs no others.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
