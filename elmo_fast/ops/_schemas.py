"""Schemas of all ops, on one screen: C++ implements their CPU key where it is faster than torch, Triton their CUDA key.

The names are an op's autograd (`_autograd.py`). In the schema of `<op>_backward`, `grad` is the gradient of the first
output of `<op>` and `d_<output>` that of any other; `need_<result>` says whether that result, and those after it up to
the next that has a flag, are needed; every other argument is an input or output of `<op>`. A result is named after the
input whose gradient it is.

save: whether the backward pass will run. saved: what it needs besides inputs and outputs, known to each backend
alone; empty without `save`. packed: copies of the weights as the backend reads them (`_packed.py`); on the CPU what
pack_weight returned for each, in the order of the arguments. None: the op makes them.
"""

import functools
import hashlib
import pathlib
from collections import namedtuple
from typing import Any

import torch

SCHEMAS = (
    # a [M, K] · b [K, N], operands rounded to `precision`
    "matmul(Tensor a, Tensor b, str precision) -> Tensor",
    # the weight as products on the CPU read it; layout: "plain" [N, K], "filters", "highway" or "gates"
    "pack_weight(Tensor weight, str layout, str precision) -> Tensor[]",
    "adagrad_(Tensor(a!)[] parameters, Tensor(b!)[] accumulators, Tensor[] gradients, Tensor learning_rate,"
    " Tensor? scale) -> ()",
    # ids rise; row positions[i] of `rows` belongs to ids[i]. Without positions (CPU) no id comes twice
    "adagrad_rows_(Tensor(a!) table, Tensor(b!) accumulator, Tensor ids, Tensor? positions, Tensor rows,"
    " Tensor learning_rate, Tensor? scale) -> ()",
    "square_norm(Tensor[] tensors) -> Tensor",
    "merged_square_norm(Tensor ids, Tensor positions, Tensor rows, int num_words) -> Tensor",
    "padded_unique_rows(Tensor ids)"
    " -> (Tensor unique, Tensor inverse, Tensor count, Tensor sorted_inverse, Tensor order)",
    # entries: rows of the table, which is not saved for the gradient
    "gather_rows(Tensor table, Tensor inverse, Tensor? sorted_inverse, Tensor? order, SymInt entries) -> Tensor rows",
    "gather_rows_backward(Tensor grad, Tensor inverse, Tensor? sorted_inverse, Tensor? order, SymInt entries)"
    " -> Tensor table",
    "char_cnn(Tensor ids, Tensor embedding, Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, str precision,"
    " bool save, Tensor[]? packed=None) -> (Tensor features, Tensor[] saved)",
    "char_cnn_backward(Tensor grad, Tensor features, Tensor[] saved, Tensor ids, Tensor embedding, Tensor[] weights,"
    " Tensor[] biases, Tensor? count, bool tanh, str precision, bool need_embedding, bool need_weights)"
    " -> (Tensor embedding, Tensor[] weights, Tensor[] biases)",
    "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias,"
    " Tensor? count, str precision, bool save, Tensor[]? packed=None) -> (Tensor y, Tensor[] saved)",
    "highway_backward(Tensor grad, Tensor[] saved, Tensor x, Tensor[] weights, Tensor[] biases,"
    " Tensor? projection_weight, Tensor? projection_bias, Tensor? count, str precision, bool need_x, bool need_weights)"
    " -> (Tensor x, Tensor[] weights, Tensor[] biases, Tensor projection_weight, Tensor projection_bias)",
    # a clip of infinity is none; without a projection weight_hr is empty
    "projected_lstm(Tensor[] inputs, Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias, Tensor[] weight_hr,"
    " Tensor? lengths, Tensor? h0, Tensor? c0, Tensor[] masks, bool[] reverse, float cell_clip, float projection_clip,"
    " bool residual, str precision, bool save, Tensor[]? packed=None)"
    " -> (Tensor outputs, Tensor h, Tensor c, Tensor[] saved)",
    "projected_lstm_backward(Tensor d_outputs, Tensor? d_h, Tensor? d_c, Tensor[] saved, Tensor[] inputs,"
    " Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias, Tensor[] weight_hr, Tensor? lengths, Tensor? h0,"
    " Tensor? c0, Tensor[] masks, bool[] reverse, float cell_clip, float projection_clip, bool residual, str precision,"
    " bool need_inputs, bool need_weight_ih, bool need_h0) -> (Tensor[] inputs, Tensor weight_ih, Tensor weight_hh,"
    " Tensor bias, Tensor weight_hr, Tensor h0, Tensor c0)",
    # coefficients [M, L]
    "scalar_mix(Tensor[] layers, Tensor coefficients, Tensor? counted, Tensor? seed, bool layer_norm, float eps,"
    " float dropout) -> (Tensor mixes, Tensor[] saved)",
    "scalar_mix_backward(Tensor grad, Tensor[] saved, Tensor[] layers, Tensor coefficients, Tensor? counted,"
    " Tensor? seed, bool layer_norm, float dropout, bool need_layers, bool need_coefficients)"
    " -> (Tensor[] layers, Tensor coefficients)",
    "log_uniform_sample(int num_samples, int num_words, int seed, Tensor offset) -> (Tensor ids, Tensor tries)",
    # ids [N + S]: the words of the targets, then of the samples; gradients of weight and bias are of their rows.
    # log_expected: ln Q of `ids` (CPU); None: from tries, by `correction` (GPU)
    "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries,"
    " str correction, Tensor? log_expected, bool sparse, int chunk_bytes, str precision, bool save)"
    " -> (Tensor losses, Tensor ids, Tensor[] saved)",
    "sampled_softmax_backward(Tensor grad, Tensor losses, Tensor ids, Tensor[] saved, Tensor hidden, Tensor weight,"
    " bool sparse, int chunk_bytes, str precision) -> (Tensor hidden, Tensor weight, Tensor bias)",
    # log_noise: ln P of noise-contrastive estimation, in which samples equal to the target count
    "negative_sampling(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor? log_noise,"
    " float negatives, bool sparse, int chunk_bytes, str precision, bool save)"
    " -> (Tensor losses, Tensor ids, Tensor[] saved)",
    "negative_sampling_backward(Tensor grad, Tensor ids, Tensor[] saved, Tensor hidden, Tensor weight,"
    " Tensor? log_noise, float negatives, bool sparse, int chunk_bytes, str precision)"
    " -> (Tensor hidden, Tensor weight, Tensor bias)",
    "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes, bool save)"
    " -> (Tensor losses, Tensor[] saved)",
    "full_softmax_backward(Tensor grad, Tensor losses, Tensor[] saved, Tensor hidden, Tensor targets, Tensor weight,"
    " Tensor bias, str precision, int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)",
    # Gradients of all nodes or, if `sparse`, of the nodes `ids`; on a GPU, always of the nodes that it saved
    "hierarchical_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor first, Tensor nodes,"
    " Tensor codes, int longest, str precision, bool sparse, bool save) -> (Tensor losses, Tensor[] saved)",
    "hierarchical_softmax_backward(Tensor grad, Tensor[] saved, Tensor hidden, Tensor targets, Tensor weight,"
    " Tensor first, Tensor nodes, str precision, bool sparse)"
    " -> (Tensor hidden, Tensor ids, Tensor weight, Tensor bias)",
    # w, w~, b, b~ and the sums of their squares, in place; the loss, float64
    "glove(Tensor rows, Tensor columns, Tensor values, Tensor(a!)[] weights, Tensor(b!)[] squares,"
    " float learning_rate, float x_max, float alpha) -> Tensor",
)

NAMESPACE = "elmo_fast"
# The extension has the digest of the file that it was built with: with other schemas it would misread its arguments.
DIGEST = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()


def define(namespace: str) -> torch.library.Library:
    """Define all ops in a namespace of torch.ops; return the library that implements them."""
    library = torch.library.Library(namespace, "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    return library


LIBRARY = define(NAMESPACE)


def overload(name: str, namespace: str = NAMESPACE) -> Any:
    """Return the registered op."""
    return getattr(getattr(torch.ops, namespace), name).default


@functools.cache
def arguments_of(name: str) -> Any:
    """Return a namedtuple class with the names of an op's arguments."""
    arguments = overload(name)._schema.arguments
    defaults = [argument.default_value for argument in arguments if argument.has_default_value()]
    return namedtuple("arguments", [argument.name for argument in arguments], defaults=defaults)
