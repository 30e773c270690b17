// highway. Forward: a block of 64 columns holds the transforms and gates of 32 units, so that each tile of a product is turned into the
// layer's output while it lies in the first-level cache.
#include <algorithm>

#include "common/gemm.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/sums.h"
#include "common/tensor.h"

namespace elmo_fast::highway {
namespace {

constexpr int64_t kUnits = 32;  // units of a layer whose transform and gate share one block of 64 columns
constexpr int64_t kRows = 64;   // rows of one product
constexpr int64_t kStrip = 512; // rows that stay in the second-level cache while every block of the weight passes by

// Raises unless these are rows [N, W], layers [2W, W] and a projection [D, W] of one dtype.
void check_layers(const Arguments& check, const Tensor& x, TensorList weights, const std::optional<Tensor>& projection_weight) {
  check.tensor("x", x, kFloating, {kAny, kAny});
  check.tensors("weights", weights, x.scalar_type(), {2 * x.size(1), x.size(1)});
  check.tensor("projection_weight", projection_weight, x.scalar_type(), {kAny, x.size(1)});
}

// One layer's arrays; `transform` and `gate` are null unless backward will want them.
template <typename T>
struct Layer {
  const T *x, *bias;
  T *y, *transform, *gate;
  int64_t width;
};

// Row `row` of units first..first+n from its tile row: 32 transforms, then 32 gates; `bias` likewise.
template <typename T>
ELMO_MULTIVERSION void mix(const Layer<T>& l, const T* __restrict tile, const T* __restrict bias, int64_t row, int64_t first, int64_t n) {
  T transform[kUnits], gate[kUnits];
  for (int64_t j = 0; j < kUnits; ++j) {
    const T p = tile[j] + bias[j];
    transform[j] = p < T(0) ? T(0) : p;
    gate[j] = sigmoid_of(tile[kUnits + j] + bias[kUnits + j]);
  }
  const T* x = l.x + row * l.width + first;
  T* __restrict y = l.y + row * l.width + first;
  for (int64_t j = 0; j < n; ++j) y[j] = gate[j] * x[j] + (T(1) - gate[j]) * transform[j];
  if (l.transform == nullptr) return;
  std::copy_n(transform, n, l.transform + row * l.width + first);
  std::copy_n(gate, n, l.gate + row * l.width + first);
}

// One layer on the rows of x, whose operands these are.
template <typename T>
void run_layer(const Layer<T>& l, const Packed& w, const Tensor& operands) {
  const int64_t rows = operands.size(0), bytes = operands.size(1) * element_size(w.operand), strips = (rows + kStrip - 1) / kStrip;
  const auto* from = static_cast<const char*>(operands.const_data_ptr());
  parallel_for(strips * w.blocks(), grain_of(std::min(rows, kStrip) * w.k * kBlock), [&](int64_t begin, int64_t end) {
    alignas(64) T tile[kRows * kBlock], bias[kBlock];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t strip = task / w.blocks() * kStrip, strip_end = std::min(rows, strip + kStrip);
      const int64_t block = task % w.blocks(), first = block * kUnits, units = std::min(kUnits, l.width - first);
      std::fill_n(bias, kBlock, T(0));
      std::copy_n(l.bias + first, units, bias);
      std::copy_n(l.bias + l.width + first, units, bias + kUnits);
      for (int64_t row = strip; row < strip_end; row += kRows) {
        const int64_t m = std::min(kRows, strip_end - row);
        multiply_block<T>(w, block, from + row * bytes, operands.size(1), m, tile, kBlock, false);
        for (int64_t i = 0; i < m; ++i) mix(l, tile + i * kBlock, bias, row + i, first, units);
      }
    }
    release_kernels(w);
  });
}

template <typename T>
std::tuple<Tensor, std::vector<Tensor>> forward(
    const Arguments& check, const Tensor& input, TensorList weights, TensorList biases, const std::optional<Tensor>& projection_weight,
    const std::optional<Tensor>& projection_bias, Operand operand, bool save, const Copies& packed) {
  Tensor x = input.contiguous(), operands = to_operand_rows(x, operand);
  const int64_t rows = x.size(0), width = x.size(1), layers = static_cast<int64_t>(weights.size());
  // For backward, of each layer: transform, gate and y.
  const std::vector<Tensor> saved(save ? 1 : 0, save ? empty({layers, 3, rows, width}, x.scalar_type()) : Tensor());
  for (int64_t i = 0; i < layers; ++i) {
    const auto bias = biases[i].contiguous(), parts = save ? saved[0].select(0, i) : Tensor(), y = save ? parts.select(0, 2) : empty_like(x);
    const Layer<T> layer{
        x.template const_data_ptr<T>(),
        bias.template const_data_ptr<T>(),
        y.template mutable_data_ptr<T>(),
        save ? parts.select(0, 0).template mutable_data_ptr<T>() : nullptr,
        save ? parts.select(0, 1).template mutable_data_ptr<T>() : nullptr,
        width};
    run_layer(layer, packed_of(check, highway_layout(weights[i]), operand, packed, i), operands);
    operands = to_operand_rows(y, operand);
    x = y;
  }
  if (!projection_weight.has_value()) return {save || layers == 0 ? x.clone() : x, saved};
  const auto w = packed_of(check, projection_weight->t(), operand, packed, weights.size());
  const auto bias = projection_bias.has_value() ? projection_bias->contiguous() : Tensor();
  const auto y = empty({rows, w.n}, x.scalar_type());
  multiply_operands(w, operands, y, false, bias);
  return {y, saved};
}

std::tuple<Tensor, std::vector<Tensor>> highway(
    const Tensor& x, TensorList weights, TensorList biases, const std::optional<Tensor>& projection_weight,
    const std::optional<Tensor>& projection_bias, const std::optional<Tensor>& count, const Name& precision, bool save,
    const Copies& packed) {
  const Arguments check("highway");
  check.need(!count.has_value(), "count is of GPUs; the CPU's kernel computes all rows");
  check_layers(check, x, weights, projection_weight);
  check.need(biases.size() == weights.size(), "biases must be one per layer, ", weights.size(), "; got ", biases.size());
  check.tensors("biases", biases, x.scalar_type(), {2 * x.size(1)});
  if (projection_weight.has_value()) check.tensor("projection_bias", projection_bias, x.scalar_type(), {projection_weight->size(0)});
  const Operand operand = resolve_operand(precision, x.scalar_type(), !save);
  return by_type(x.scalar_type(), [&]<typename T>() {
    return forward<T>(check, x, weights, biases, projection_weight, projection_bias, operand, save, packed);
  });
}

// highway backward: one fused loop per layer gives the gradients of its products; four kinds of product do the rest.

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
  const auto sums = zeros({x.size(1)}, kDouble);
  add_column_sums(x, {}, sums);
  return sums.to(x.scalar_type());
}

template <typename T>
std::tuple<Tensor, Tensor> layer_gradients(
    const Tensor& dy, const Tensor& x, const Tensor& saved, const Tensor& weight, Operand operand, bool need_x) {
  const int64_t rows = x.size(0), width = x.size(1);
  const auto d_products = empty({rows, 2 * width}, x.scalar_type()), dx = empty_like(x);
  const T *from = dy.template const_data_ptr<T>(), *input = x.template const_data_ptr<T>();
  const T *transform = saved.template const_data_ptr<T>(), *gate = transform + rows * width;
  T *products = d_products.template mutable_data_ptr<T>(), *carried = dx.template mutable_data_ptr<T>();
  parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      unmix(
          from + i * width, input + i * width, transform + i * width, gate + i * width, products + 2 * i * width,
          products + (2 * i + 1) * width, carried + i * width, width);
  });
  if (need_x) multiply_rows(pack(weight, operand), d_products, dx, true);
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
  const auto none = [&] { return empty({0}, x.scalar_type()); };  // three tensors: outputs of an op may not alias
  const std::vector<Tensor> each(need_weights ? layers : 0);
  Gradients g{none(), each, each, none(), none()};
  auto& [dx, d_weights, d_biases, d_projection, d_projection_bias] = g;
  Tensor dy = grad.contiguous();
  if (projection_weight.has_value()) {
    const auto d = dy;
    if (need_weights) d_projection = matmul(d.t(), input_of(layers), operand), d_projection_bias = column_sums(d);
    if (layers == 0 && !need_x) return g;
    dy = empty_like(x);
    multiply_rows(pack(*projection_weight, operand), d, dy);
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
    const Tensor& grad, TensorList all_saved, const Tensor& x, TensorList weights, TensorList /*biases*/,
    const std::optional<Tensor>& projection_weight, const std::optional<Tensor>& /*projection_bias*/,
    const std::optional<Tensor>& /*count*/, const Name& precision, bool need_x, bool need_weights) {
  const Arguments check("highway_backward");
  check_layers(check, x, weights, projection_weight);
  check.saved(all_saved, 1);
  const Tensor saved = all_saved[0];
  check.tensor("saved", saved, x.scalar_type(), {static_cast<int64_t>(weights.size()), 3, x.size(0), x.size(1)});
  check.contiguous("saved", saved);
  check.tensor("grad", grad, x.scalar_type(), {x.size(0), projection_weight.has_value() ? projection_weight->size(0) : x.size(1)});
  const Operand operand = resolve_operand(precision, x.scalar_type());
  return by_type(x.scalar_type(), [&]<typename T>() {
    return backward<T>(grad, x, saved, weights, projection_weight, operand, need_x, need_weights);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("highway", TORCH_BOX(&highway));
  m.impl("highway_backward", TORCH_BOX(&highway_backward));
}

}  // namespace elmo_fast::highway

namespace elmo_fast {

// weight [2W, W] as right operand [W, 2W], its columns in blocks of 32 transforms and the same 32 units' gates.
Layout highway_layout(const Tensor& weight) {
  const int64_t width = weight.size(1);
  std::vector<int64_t> columns;
  for (int64_t first = 0; first < width; first += highway::kUnits)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t unit = first; unit < first + highway::kUnits; ++unit) columns.push_back(unit < width ? half * width + unit : -1);
  return {weight.t(), std::move(columns)};
}

}  // namespace elmo_fast
