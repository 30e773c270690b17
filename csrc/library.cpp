// All schemas on one screen; each op's folder holds its CPU kernels, each op's native.py the shapes of its results. The
// names in a backward schema are its autograd (elmo_fast/ops/_autograd.py): `grad` or d_<output> is the gradient of an
// output, need_<input> whether that input's gradient is wanted, and every other argument an input or output of the op.
#include "common/buffer.h"
#include "common/checks.h"
#include "common/gemm.h"
#include "common/packed.h"
#include "common/simd.h"

// `stamps` of an op are those of its weights (common/packed.h), in the order of its arguments; none: no weight has one.
STABLE_TORCH_LIBRARY(elmo_fast, m) {
  // common/gemm: a[M, K] · b[K, N], operands rounded to `precision`
  m.def("matmul(Tensor a, Tensor b, str precision) -> Tensor");
  // common/simd: the sigmoid and tanh of the gates, for the tests of their accuracy
  m.def("activations(Tensor x) -> (Tensor sigmoid, Tensor tanh)");
  // common/tensor, common/buffer: memory of that shape that nothing has written, for the tests that NaN fills it where torch was asked to
  m.def("unwritten(Tensor like) -> (Tensor tensor, Tensor buffer)");

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

  // sampled_softmax: rows, offsets and ids are those of the N targets, then of the S samples; log_sums as full_softmax's
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

  // cooccurrences: `table` is the word of each number, below 0 none; `weights` of each distance, whole numbers; `corner`[threads, cells]
  // has the sums of frequent pairs, those with (row + 1)(column + 1) <= product; a run is sorted keys and their sums
  m.def("cooccurrence_corner_cells(int num_words, int product, bool symmetric) -> int");
  m.def(
      "count_cooccurrences(Tensor numbers, int begin, int end, Tensor table, Tensor weights, int num_words, int product, bool symmetric, "
      "Tensor(a!) corner) -> (Tensor[] keys, Tensor[] sums)");
  m.def(
      "cooccurrence_row_sizes(Tensor[] keys, Tensor[] sums, Tensor corner, int num_words, int product, bool symmetric) -> Tensor");
  m.def(
      "merge_cooccurrences(Tensor[] keys, Tensor[] sums, Tensor corner, Tensor sizes, int product, bool symmetric, int scale, "
      "Tensor(a!) rows, Tensor(b!) columns, Tensor(c!) values) -> ()");

  // glove: w, w~, b, b~ and the sums of their squares, in place; the loss, float64
  m.def(
      "glove(Tensor rows, Tensor columns, Tensor values, Tensor(a!)[] weights, Tensor(b!)[] squares, float learning_rate, float x_max, "
      "float alpha) -> Tensor");

  // vector_text: `fault` is the number, begin and end of the first line that could not be read; -1 where all were
  m.def("read_vector_text(Tensor data, int dimension) -> (Tensor matrix, Tensor words, Tensor fault)");
  m.def("write_vector_text(Tensor words, Tensor ends, Tensor matrix) -> Tensor");

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

  // negative_sampling: rows, offsets and ids as sampled_softmax's; `slopes` [N, S] where kept, else [0, S]
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
ELMO_MULTIVERSION void activate(const float* x, float* sigmoid, float* tanh, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    sigmoid[i] = elmo_fast::sigmoid_of(x[i]);
    tanh[i] = elmo_fast::tanh_of(x[i]);
  }
}

std::tuple<elmo_fast::Tensor, elmo_fast::Tensor> activations(const elmo_fast::Tensor& x) {
  const elmo_fast::Arguments check("activations");
  check.floating("x", x, x.sizes());
  check.contiguous("x", x);
  const auto sigmoid = elmo_fast::empty_like(x), tanh = elmo_fast::empty_like(x);
  activate(x.const_data_ptr<float>(), sigmoid.mutable_data_ptr<float>(), tanh.mutable_data_ptr<float>(), x.numel());
  return {sigmoid, tanh};
}

std::tuple<elmo_fast::Tensor, elmo_fast::Tensor> unwritten(const elmo_fast::Tensor& like) {
  return {elmo_fast::empty_like(like), elmo_fast::empty_buffer(like.sizes(), like.options())};
}

elmo_fast::Tensor matmul(const elmo_fast::Tensor& a, const elmo_fast::Tensor& b, const elmo_fast::Name& precision) {
  return elmo_fast::matmul(a, b, elmo_fast::resolve_operand(precision, a.scalar_type(), true));
}

// What elmo_fast/_C.py calls through ctypes: no exception may pass, so that a text is null where one was thrown, whose words are kept.
thread_local std::string said;

template <typename Text>
const char* kept(const Text& text) {
  try {
    said = text();
    return said.c_str();
  } catch (const std::exception& error) {
    said = error.what();
    return nullptr;
  }
}
}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("activations", ELMO_BOX(activations));
  m.impl("matmul", ELMO_BOX(matmul));
  m.impl("unwritten", ELMO_BOX(unwritten));
}

#define ELMO_EXPORT extern "C" __attribute__((visibility("default")))

// Why this build has no CUDA kernels; null where it has.
ELMO_EXPORT const char* elmo_fast_why_no_cuda() {
#if defined(ELMO_FAST_NO_CUDA)
  return ELMO_FAST_NO_CUDA;
#else
  return nullptr;
#endif
}
ELMO_EXPORT const char* elmo_fast_error() { return said.c_str(); }
ELMO_EXPORT const char* elmo_fast_isa() { return kept(elmo_fast::isa_name); }
// All, separated by spaces.
ELMO_EXPORT const char* elmo_fast_isas() {
  return kept([] {
    std::string names;
    for (const auto& name : elmo_fast::isa_names()) names += (names.empty() ? "" : " ") + name;
    return names;
  });
}
ELMO_EXPORT const char* elmo_fast_limit_isa(const char* name) {
  return kept([&] {
    elmo_fast::limit_isa(name);
    return std::string();
  });
}
ELMO_EXPORT int64_t elmo_fast_packed_count() { return elmo_fast::packed_count(); }
ELMO_EXPORT int64_t elmo_fast_packed_bytes() { return elmo_fast::packed_bytes(); }
ELMO_EXPORT void elmo_fast_clear_packed() { elmo_fast::clear_packed(); }
ELMO_EXPORT void elmo_fast_hear_of_deaths() { elmo_fast::hear_of_deaths(); }
ELMO_EXPORT void elmo_fast_forget_packed(int64_t storage) { elmo_fast::forget_packed(storage); }
ELMO_EXPORT int64_t elmo_fast_idle_buffer_bytes() { return elmo_fast::idle_buffer_bytes(); }
ELMO_EXPORT void elmo_fast_clear_idle_buffers() { elmo_fast::clear_idle_buffers(); }
