// char_cnn's backward on a CUDA device: memory, device and stream for the kernels of backward.cu.

#include <algorithm>
#include <limits>

#include "char_cnn/backward.cuh"
#include "common/cuda.h"

namespace elmo_fast::char_cnn {
namespace {

using Gradients = std::tuple<Tensor, std::vector<Tensor>, std::vector<Tensor>>;

Rounding rounding_of(std::string_view precision) {
  return precision == "bfloat16" ? Rounding::BFloat16 : precision == "float16" ? Rounding::Float16 : Rounding::Float32;
}

void check(
    const Tensor& grad, const Tensor& features, const Tensor& winners, const Tensor& ids, const Tensor& embedding,
    TensorList weights) {
  const int32_t device = embedding.options().device_index;
  ELMO_CHECK(ids.dim() == 2 && embedding.dim() == 2 && features.dim() == 2, "char_cnn_cuda_backward: ids, embedding, features have 2 dimensions");
  ELMO_CHECK(
      std::ranges::equal(winners.sizes(), features.sizes()) && std::ranges::equal(grad.sizes(), features.sizes()) && features.size(0) == ids.size(0),
      "char_cnn_cuda_backward: grad, features and winners must have one shape, and a row for each of ids");
  ELMO_CHECK(weights.size() <= kMaxWidths, "char_cnn_cuda_backward: at most ", kMaxWidths, " widths; got ", weights.size());
  ELMO_CHECK(ids.size(1) <= std::numeric_limits<int16_t>::max(), "char_cnn: more slots than an int16 counts: ", ids.size(1));
  ELMO_CHECK(
      winners.scalar_type() == kShort && (ids.scalar_type() == kLong || ids.scalar_type() == kInt),
      "char_cnn_cuda_backward: winners ", winners.scalar_type(), ", ids ", ids.scalar_type());
  int64_t filters = 0;
  for (const auto& w : weights) {
    ELMO_CHECK(
        w.dim() == 3 && w.size(1) == embedding.size(1) && w.size(2) >= 1 && w.size(2) <= ids.size(1),
        "char_cnn_cuda_backward: weights must be [n, ", embedding.size(1), ", 1 to ", ids.size(1), "]");
    ELMO_CHECK(on_device(w, device) && w.scalar_type() == kFloat, "char_cnn_cuda_backward: weights must be like embedding");
    filters += w.size(0);
  }
  ELMO_CHECK(filters == features.size(1), "char_cnn_cuda_backward: ", filters, " filters and ", features.size(1), " features");
  for (const auto& t : {grad, features, winners, ids, embedding})
    ELMO_CHECK(on_device(t, device), "char_cnn_cuda_backward: all tensors must be on one CUDA device");
  for (const auto& t : {grad, features, embedding})
    ELMO_CHECK(t.scalar_type() == kFloat, "char_cnn_cuda_backward: float32 tensors; got ", t.scalar_type());
}

// Contiguous copies that stay alive until all launches are queued: the stream keeps the order, the allocator the memory.
struct Inputs {
  Tensor grad, features, winners, ids, embedding, count;
  std::vector<Tensor> weights;
};

Params describe(const Inputs& in, Gradients& out, bool tanh, std::string_view precision, bool need_embedding, bool need_weights) {
  Params p{};
  p.rows = in.ids.size(0), p.slots = in.ids.size(1), p.characters = in.embedding.size(0), p.size = in.embedding.size(1);
  p.widths = static_cast<int32_t>(in.weights.size());
  for (int i = 0; i < p.widths; ++i) {
    const auto& w = in.weights[i];
    p.width[i].filters = static_cast<int32_t>(w.size(0)), p.width[i].width = static_cast<int32_t>(w.size(2));
    p.width[i].weight = w.const_data_ptr<float>();
    if (!need_weights) continue;
    p.width[i].d_weight = std::get<1>(out)[i].mutable_data_ptr<float>();
    p.width[i].d_bias = std::get<2>(out)[i].mutable_data_ptr<float>();
  }
  lay_out(p);
  p.count = in.count.defined() ? in.count.const_data_ptr<int64_t>() : nullptr;
  p.grad = in.grad.const_data_ptr<float>(), p.out = in.features.const_data_ptr<float>();
  p.winners = in.winners.const_data_ptr<int16_t>(), p.ids = in.ids.const_data_ptr();
  p.wide_ids = in.ids.scalar_type() == kLong, p.tanh = tanh, p.rounding = rounding_of(precision);
  p.need_embedding = need_embedding, p.need_weights = need_weights;
  p.embedding = in.embedding.const_data_ptr<float>();
  if (need_embedding) p.d_embedding = std::get<0>(out).mutable_data_ptr<float>();
  return p;
}

Gradients char_cnn_cuda_backward(
    const Tensor& grad, const Tensor& features, const Tensor& winners, const Tensor& ids, const Tensor& embedding,
    TensorList weights, const std::optional<Tensor>& count, bool tanh, const Name& precision, bool need_embedding,
    bool need_weights) {
  check(grad, features, winners, ids, embedding, weights);
  const int32_t device = embedding.options().device_index;
  const CudaGuard guard(device);
  Inputs in{grad.contiguous(), features.contiguous(), winners.contiguous(), ids.contiguous(), embedding.contiguous(), {}, {}};
  for (const auto& w : weights) in.weights.push_back(w.contiguous());
  if (count.has_value()) {
    ELMO_CHECK(count->numel() == 1 && on_device(*count, device), "char_cnn_cuda_backward: count must be one number on the GPU");
    in.count = count->to(kLong);
  }
  Gradients out{need_embedding ? empty_like(embedding) : empty({0}, embedding.options()), {}, {}};
  for (const auto& w : weights) {
    if (!need_weights) break;
    std::get<1>(out).push_back(empty(w.sizes(), embedding.options()));
    std::get<2>(out).push_back(empty({w.size(0)}, embedding.options()));
  }
  Params p = describe(in, out, tanh, precision, need_embedding, need_weights);
  if (p.characters == 0 || p.size == 0) {  // then there are no words either, or their windows are empty of numbers
    std::get<0>(out).zero_();
    for (auto& d : std::get<1>(out)) d.zero_();
    for (auto& d : std::get<2>(out)) d.zero_();
    ELMO_CHECK(p.rows == 0, "char_cnn_cuda_backward: an empty embedding");
    return out;
  }
  const auto workspace = empty({workspace_floats(p)}, embedding.options());
  p.table = workspace.mutable_data_ptr<float>();
  p.filters = p.table + p.vectors() * kVector * p.characters;
  p.sums = p.filters + p.vectors() * kVector * p.columns;
  STD_CUDA_CHECK(launch(p, current_stream(device)));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CUDA, m) { m.impl("char_cnn_cuda_backward", ELMO_BOX(char_cnn_cuda_backward)); }

}  // namespace elmo_fast::char_cnn
