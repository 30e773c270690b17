"""The ops: one folder each, its definition (`reference.py`) beside its kernels.

Letters used in every docstring: B batch, T time, I input width, D projection, H cells, C characters (slots),
E character embedding, F filters, N rows (words), V vocabulary, S samples, L layers, M mixes,
R directions run side by side.
"""

from elmo_fast.ops._dispatch import BACKENDS, Choice, explain, ops
from elmo_fast.ops._precision import PRECISIONS, rounded
from elmo_fast.ops.char_cnn import char_cnn
from elmo_fast.ops.full_softmax import full_softmax
from elmo_fast.ops.highway import highway
from elmo_fast.ops.log_uniform_sample import expected_counts, log_expected_counts, log_uniform_sample
from elmo_fast.ops.projected_lstm import LSTMWeights, persistent_failure, projected_lstm
from elmo_fast.ops.sampled_softmax import coalesced, sampled_softmax
from elmo_fast.ops.scalar_mix import scalar_mix
from elmo_fast.ops.unique_rows import unique_rows

__all__ = [
    "BACKENDS",
    "PRECISIONS",
    "Choice",
    "LSTMWeights",
    "char_cnn",
    "coalesced",
    "expected_counts",
    "explain",
    "full_softmax",
    "highway",
    "log_expected_counts",
    "log_uniform_sample",
    "ops",
    "persistent_failure",
    "projected_lstm",
    "rounded",
    "sampled_softmax",
    "scalar_mix",
    "unique_rows",
]
