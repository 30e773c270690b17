// All schemas on one screen; each op's folder holds its CPU kernels, each op's native.py the shapes of its results. The names in a backward schema
// are its autograd (elmo_fast/ops/_autograd.py): `grad` or d_<output> is the gradient of an output, need_<input> is true if that input needs a
// gradient, and every other argument is an input or output of the op.
#include "common/gemm.h"

// `stamps` of an op belong to its weights (common/packed.h), in the order of its arguments; an empty list: no weight has a stamp.
STABLE_TORCH_LIBRARY(elmo_fast, m) {
  // common/gemm: a[M, K] · b[K, N], operands rounded to `precision`
  m.def("matmul(Tensor a, Tensor b, str precision) -> Tensor");

  // adagrad: the rows' ids rise, none twice; a scale that is not finite changes nothing
  m.def(
      "adagrad_(Tensor(a!)[] parameters, Tensor(b!)[] accumulators, Tensor[] gradients, float learning_rate, Tensor? scale) -> ()");
  m.def(
      "adagrad_rows_(Tensor(a!) table, Tensor(b!) accumulator, Tensor ids, Tensor rows, float learning_rate, Tensor? scale) -> ()");
  m.def("square_norm(Tensor[] tensors) -> Tensor");

  // unique_rows
  m.def("unique_rows(Tensor ids) -> (Tensor unique, Tensor inverse)");

  // gather_runs: `first` counts through all parts of `values`; runs from `upward` on are read downwards
  m.def("gather_runs(Tensor[] values, Tensor first, Tensor lengths, int upward, Tensor(a!) out) -> ()");

  // char_cnn: `winners` is the window that gave each feature, [N, F] int16 where `save`, else [0, F]
  m.def(
      "char_cnn(Tensor ids, Tensor embedding, Tensor[] weights, Tensor[] biases, bool tanh, str precision, bool save,"
      " int[] stamps=[]) -> (Tensor features, Tensor winners)");
  m.def(
      "char_cnn_backward(Tensor grad, Tensor features, Tensor winners, Tensor ids, Tensor embedding, Tensor[] weights, bool tanh,"
      " str precision, bool need_embedding, bool need_weights) -> (Tensor embedding, Tensor[] weights, Tensor[] biases)");
  // CUDA builds alone have a kernel for it; rows from `count` on, a number on the device, are no words
  m.def(
      "char_cnn_cuda_backward(Tensor grad, Tensor features, Tensor winners, Tensor ids, Tensor embedding, Tensor[] weights, Tensor? count,"
      " bool tanh, str precision, bool need_embedding, bool need_weights) -> (Tensor embedding, Tensor[] weights, Tensor[] biases)");

  // highway: `saved` holds each layer's transform, gate and output, [layers, 3, N, W] where `save`, else [0]
  m.def(
      "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias, str precision,"
      " bool save, int[] stamps=[]) -> (Tensor y, Tensor saved)");
  m.def(
      "highway_backward(Tensor grad, Tensor x, Tensor saved, Tensor[] weights, Tensor? projection_weight, str precision,"
      " bool need_x, bool need_weights) -> (Tensor x, Tensor[] weights, Tensor[] biases, Tensor projection_weight,"
      " Tensor projection_bias)");

  // projected_lstm
  m.def(
      "projected_lstm(Tensor[] inputs, Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias, Tensor[] weight_hr, Tensor lengths, "
      "Tensor? h0, Tensor? c0, Tensor[] masks, bool[] reverse, float cell_clip, float projection_clip, bool residual, str precision, "
      "bool save, int[] stamps=[]) -> (Tensor outputs, Tensor h, Tensor c, Tensor gates, Tensor cells, Tensor projections)");
  m.def(
      "projected_lstm_backward(Tensor d_outputs, Tensor? d_h, Tensor? d_c, Tensor[] inputs, Tensor[] weight_ih, Tensor[] weight_hh, "
      "Tensor[] weight_hr, Tensor lengths, Tensor? h0, Tensor? c0, Tensor[] masks, Tensor gates, Tensor cells, Tensor projections, "
      "bool[] reverse, float cell_clip, float projection_clip, bool residual, str precision, bool need_inputs, bool need_weights) -> "
      "(Tensor[] d_inputs, Tensor[] d_weight_ih, Tensor[] d_weight_hh, Tensor[] d_bias, Tensor[] d_weight_hr, Tensor d_h0, Tensor d_c0)");

  // scalar_mix: statistics[2, L] mean and 1/sqrt(variance + eps), float64
  m.def("scalar_mix(Tensor[] layers, Tensor coefficients, Tensor? counted, bool layer_norm, float eps) -> (Tensor mixes, Tensor statistics)");
  m.def(
      "scalar_mix_backward(Tensor grad, Tensor[] layers, Tensor coefficients, Tensor? counted, Tensor statistics, bool layer_norm, "
      "bool need_layers, bool need_coefficients) -> (Tensor[] layers, Tensor coefficients)");

  // sampled_softmax: rows, offsets and ids of the N targets, then of the S samples; log_sums as full_softmax's
  m.def("log_uniform_sample(int num_samples, int num_words, int seed, int offset) -> (Tensor ids, Tensor tries)");
  // CUDA builds alone have a kernel for it; seed_more and offset_more are numbers on the device, added to seed and offset
  m.def(
      "log_uniform_sample_cuda(int num_samples, int num_words, int seed, int offset, Tensor? seed_more, Tensor? offset_more, Device device)"
      " -> (Tensor ids, Tensor tries)");
  m.def(
      "sampled_softmax(Tensor hidden, Tensor rows, Tensor offsets, Tensor ids, str precision, int chunk_bytes, bool keep) -> "
      "(Tensor losses, Tensor log_sums, Tensor probabilities)");
  m.def(
      "sampled_softmax_backward(Tensor grad, Tensor hidden, Tensor rows, Tensor offsets, Tensor ids, Tensor losses, Tensor log_sums, "
      "Tensor probabilities, str precision, int chunk_bytes) -> (Tensor hidden, Tensor rows, Tensor offsets)");

  // glove: w, w~, b, b~ and the sums of their squares, in place; the loss, float64
  m.def(
      "glove(Tensor rows, Tensor columns, Tensor values, Tensor(a!)[] weights, Tensor(b!)[] squares, float learning_rate, float x_max, "
      "float alpha) -> Tensor");

  // full_softmax: log_sums [N, 2], a row's largest logit, and the log-sum-exp of all logits less it
  m.def(
      "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes)"
      " -> (Tensor losses, Tensor log_sums)");
  m.def(
      "full_softmax_backward(Tensor grad, Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor losses, Tensor log_sums,"
      " str precision, int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)");

  // alias_sample
  m.def("alias_pairs(Tensor shares) -> (Tensor thresholds, Tensor aliases)");
  m.def("alias_sample(int num_samples, Tensor thresholds, Tensor aliases, int seed, int offset) -> Tensor");

  // negative_sampling: rows, offsets and ids as sampled_softmax's; `slopes` [N, S] if saved, else [0, S]
  m.def(
      "negative_sampling(Tensor hidden, Tensor rows, Tensor offsets, Tensor ids, float share, bool count_hits, str precision,"
      " int chunk_bytes, bool keep) -> (Tensor losses, Tensor d_true, Tensor slopes)");
  m.def(
      "negative_sampling_backward(Tensor grad, Tensor hidden, Tensor rows, Tensor offsets, Tensor ids, Tensor d_true, Tensor slopes,"
      " float share, bool count_hits, str precision, int chunk_bytes) -> (Tensor hidden, Tensor rows, Tensor offsets)");

  // hierarchical_softmax: `slopes` [N, longest]; the gradients of all nodes or, where `sparse`, of the nodes `ids` passed
  m.def("huffman_tree(Tensor counts, Tensor order) -> (Tensor first, Tensor nodes, Tensor codes)");
  m.def(
      "hierarchical_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor first, Tensor nodes, Tensor codes,"
      " int longest, str precision, bool sparse) -> (Tensor losses, Tensor slopes)");
  m.def(
      "hierarchical_softmax_backward(Tensor grad, Tensor hidden, Tensor targets, Tensor weight, Tensor slopes, Tensor first,"
      " Tensor nodes, str precision, bool sparse) -> (Tensor hidden, Tensor ids, Tensor weight, Tensor bias)");
}

namespace {
elmo_fast::Tensor matmul(const elmo_fast::Tensor& a, const elmo_fast::Tensor& b, const elmo_fast::Name& precision) {
  return elmo_fast::matmul(a, b, elmo_fast::resolve_operand(precision, a.scalar_type(), true));
}
}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("matmul", ELMO_BOX(matmul)); }
