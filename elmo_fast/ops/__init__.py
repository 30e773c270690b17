"""The ops: one folder each, its definition (`reference.py`) beside its kernels.

Letters used in every docstring: B batch, T time, I input width, D projection, H cells, C characters (slots), E character
embedding, F filters, N rows (words), V vocabulary, S samples, L layers, M mixes, R directions run side by side.
"""

from elmo_fast.ops._dispatch import BACKENDS, Choice, explain, ops
from elmo_fast.ops._precision import PRECISIONS, rounded
from elmo_fast.ops.projected_lstm import LSTMWeights, projected_lstm

__all__ = ["BACKENDS", "PRECISIONS", "Choice", "LSTMWeights", "explain", "ops", "projected_lstm", "rounded"]
