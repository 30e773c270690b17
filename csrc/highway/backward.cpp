// highway backward: one fused loop per layer gives the gradients of its products; four kinds of product do the rest.
#include "highway/layers.h"


#include <algorithm>

#include "common/column_sums.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast::highway {
namespace {

// n units of one row: dy -> d_products (transform, then gate) and the part of dx that the gate carries.
template <typename T>
ELMO_MULTIVERSION void unmix(
    const T* __restrict dy, const T* __restrict x, const T* __restrict transform, const T* __restrict gate, T* __restrict d_transform,
    T* __restrict d_gate, T* __restrict dx, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    d_transform[j] = transform[j] <= T(0) ? T(0) : dy[j] * (T(1) - gate[j]);
    d_gate[j] = dy[j] * (x[j] - transform[j]) * gate[j] * (T(1) - gate[j]);
    dx[j] = dy[j] * gate[j];
  }
}

Tensor column_sums(const Tensor& x) {
  const auto sums = zeros({x.size(1)}, x.options().dtype(kDouble));
  add_column_sums(x, {}, sums);
  return sums.to(x.scalar_type());
}

// d [N, n] · weight [n, k], added to dx [N, k].
template <typename T>
void add_input_gradient(const Tensor& d, const Tensor& weight, Operand operand, const Tensor& dx, bool accumulate) {
  const auto operands = to_operand_rows(d, operand);
  const auto w = pack(weight, operand);
  multiply<T>(
      w, operands.const_data_ptr(), operands.size(1), d.size(0), dx.template mutable_data_ptr<T>(), w.n, accumulate);
}

template <typename T>
std::tuple<Tensor, Tensor> layer_gradients(
    const Tensor& dy, const Tensor& x, const Tensor& saved, const Tensor& weight, Operand operand, bool need_x) {
  const int64_t rows = x.size(0), width = x.size(1);
  const auto d_products = empty({rows, 2 * width}, x.options()), dx = empty_like(x);
  const T *from = dy.template const_data_ptr<T>(), *input = x.template const_data_ptr<T>();
  const T *transform = saved.template const_data_ptr<T>(), *gate = transform + rows * width;
  T *products = d_products.template mutable_data_ptr<T>(), *carried = dx.template mutable_data_ptr<T>();
  parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      unmix(
          from + i * width, input + i * width, transform + i * width, gate + i * width, products + 2 * i * width,
          products + (2 * i + 1) * width, carried + i * width, width);
  });
  if (need_x) add_input_gradient<T>(d_products, weight, operand, dx, true);
  return {d_products, dx};
}

using Gradients = std::tuple<Tensor, std::vector<Tensor>, std::vector<Tensor>, Tensor, Tensor>;

template <typename T>
Gradients backward(
    const Tensor& grad, const Tensor& input, const Tensor& saved, TensorList weights,
    const std::optional<Tensor>& projection_weight, Operand operand, bool need_x, bool need_weights) {
  const auto x = input.contiguous();
  const int64_t layers = static_cast<int64_t>(weights.size());
  const auto input_of = [&](int64_t layer) { return layer == 0 ? x : saved.select(0, layer - 1).select(0, 2); };
  const auto none = [&] { return empty({0}, x.options()); };  // three tensors: outputs of an op may not alias
  const std::vector<Tensor> each(need_weights ? layers : 0);
  Gradients g{none(), each, each, none(), none()};
  auto& [dx, d_weights, d_biases, d_projection, d_projection_bias] = g;
  Tensor dy = grad.contiguous();
  if (projection_weight.has_value()) {
    const auto d = dy;
    if (need_weights) d_projection = matmul(d.t(), input_of(layers), operand), d_projection_bias = column_sums(d);
    if (layers == 0 && !need_x) return g;
    dy = empty_like(x);
    add_input_gradient<T>(d, *projection_weight, operand, dy, false);
  }
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    const auto [d_products, carried] = layer_gradients<T>(
        dy, input_of(layer), saved.select(0, layer), weights[layer], operand, layer > 0 || need_x);
    if (need_weights) d_weights[layer] = matmul(d_products.t(), input_of(layer), operand), d_biases[layer] = column_sums(d_products);
    dy = carried;
  }
  if (need_x) dx = dy.is_same(grad) ? dy.clone() : dy;
  return g;
}

Gradients highway_backward(
    const Tensor& grad, const Tensor& x, const Tensor& saved, TensorList weights,
    const std::optional<Tensor>& projection_weight, const Name& precision, bool need_x, bool need_weights) {
  const Arguments check("highway_backward");
  check_layers(check, x, weights, projection_weight);
  check.need(saved.dim() == 4, "the forward pass was told to save nothing");
  check.tensor("saved", saved, x.scalar_type(), {static_cast<int64_t>(weights.size()), 3, x.size(0), x.size(1)});
  check.contiguous("saved", saved);
  check.tensor("grad", grad, x.scalar_type(), {x.size(0), projection_weight.has_value() ? projection_weight->size(0) : x.size(1)});
  const Operand operand = resolve_operand(precision, x.scalar_type());
  return operand == Operand::Float64 ? backward<double>(grad, x, saved, weights, projection_weight, operand, need_x, need_weights)
                                     : backward<float>(grad, x, saved, weights, projection_weight, operand, need_x, need_weights);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("highway_backward", ELMO_BOX(highway_backward)); }

}  // namespace elmo_fast::highway
