// scalar_mix over layers as [P positions, D] rows, cut into blocks that do not depend on the threads. Forward: statistics of each layer (two
// passes, double), then all mixes from one read of the layers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

constexpr int64_t kPositions = 16;  // positions of a block of partial sums
constexpr int64_t kTile = 1024;     // elements of each layer held in the first-level cache while they are mixed

struct Shape {
  int64_t positions, width;
  int64_t elements() const { return positions * width; }
  int64_t blocks() const { return (positions + kPositions - 1) / kPositions; }
};

Shape shape_of(const Tensor& layer) {
  const int64_t width = layer.size(-1);
  return {width == 0 ? 0 : layer.numel() / width, width};
}

void check_layers(const Arguments& check, TensorList layers) {
  check.need(!layers.empty() && layers[0].dim() > 0, "layers must be at least one tensor [..., D]");
  check.tensor("layers[0]", layers[0], kFloating, layers[0].sizes());
  check.tensors("layers", layers, layers[0].scalar_type(), layers[0].sizes());
}

// grad [M, ...] of mixes of these layers, and their statistics [2, L].
void check_gradient(const Arguments& check, const Tensor& grad, TensorList layers, const Tensor& statistics) {
  check_layers(check, layers);
  auto sizes = layers[0].sizes().vec();
  sizes.insert(sizes.begin(), kAny);
  check.tensor("grad", grad, layers[0].scalar_type(), sizes);
  check.tensor("statistics", statistics, kDouble, {2, static_cast<int64_t>(layers.size())});
  check.contiguous("statistics", statistics);
}

void check_counted(const Arguments& check, const std::optional<Tensor>& counted, const Tensor& layer) {
  if (!counted.has_value()) return;
  check.tensor("counted", counted, kBool, layer.sizes().slice(0, layer.dim() - 1));
  check.contiguous("counted", *counted);
}

template <typename T>
std::vector<const T*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const T*> p;
  for (const auto& tensor : tensors) p.push_back(tensor.const_data_ptr<T>());
  return p;
}

std::vector<Tensor> contiguous(TensorList tensors) {
  std::vector<Tensor> c;
  for (const auto& tensor : tensors) c.push_back(tensor.contiguous());
  return c;
}

const bool* data_or_null(const std::optional<Tensor>& counted) {
  return counted.has_value() ? counted->const_data_ptr<bool>() : nullptr;
}

int64_t count_of(const Tensor& counted) {
  const bool* flags = counted.const_data_ptr<bool>();
  return std::count(flags, flags + counted.numel(), true);
}

// Sums `count` values per block, blocks in parallel into their own rows, rows added in order: the same for any thread count.
template <typename Fill>
std::vector<double> block_sums(int64_t blocks, int64_t count, const Fill& fill) {
  std::vector<double> partial(blocks * count, 0.0), total(count, 0.0);
  parallel_for(blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) fill(block, partial.data() + block * count);
  });
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t i = 0; i < count; ++i) total[i] += partial[block * count + i];
  return total;
}

// The sum of term(i) for i below n, in 16 lanes.
template <typename Term>
ELMO_INLINE double sum_of_terms(int64_t n, const Term& term) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += term(i + j);
  double sum = 0;
  for (; i < n; ++i) sum += term(i);
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
ELMO_MULTIVERSION double sum_of(const T* x, int64_t n) {
  return sum_of_terms(n, [=](int64_t i) __attribute__((always_inline)) { return static_cast<double>(x[i]); });
}

template <typename T>
ELMO_MULTIVERSION double squares_of(const T* x, int64_t n, double mean) {
  return sum_of_terms(n, [=](int64_t i) __attribute__((always_inline)) {
    const double d = static_cast<double>(x[i]) - mean;
    return d * d;
  });
}

template <typename T>
ELMO_MULTIVERSION double dot_of(const T* a, const T* b, int64_t n, double mean) {
  return sum_of_terms(n, [=](int64_t i) __attribute__((always_inline)) {
    return static_cast<double>(a[i]) * (static_cast<double>(b[i]) - mean);
  });
}

// statistics[2, L]: mean and 1 / sqrt(variance + eps) of every layer, over the counted positions.
template <typename T>
void fill_statistics(
    const std::vector<const T*>& layers, Shape shape, const bool* counted, double eps, double number, double* statistics) {
  const int64_t count = static_cast<int64_t>(layers.size());
  const auto over_counted = [&](auto&& row_sum) {
    return block_sums(shape.blocks(), count, [&](int64_t block, double* partial) {
      for (int64_t p = block * kPositions; p < std::min(shape.positions, (block + 1) * kPositions); ++p) {
        if (counted != nullptr && !counted[p]) continue;
        for (int64_t l = 0; l < count; ++l) partial[l] += row_sum(layers[l] + p * shape.width, l);
      }
    });
  };
  const auto sums = over_counted([&](const T* row, int64_t) { return sum_of<T>(row, shape.width); });
  for (int64_t l = 0; l < count; ++l) statistics[l] = sums[l] / number;
  const auto squares = over_counted([&](const T* row, int64_t l) { return squares_of<T>(row, shape.width, statistics[l]); });
  for (int64_t l = 0; l < count; ++l) statistics[count + l] = 1.0 / std::sqrt(squares[l] / number + eps);
}

// out[n] = sum_l factors[l] * (layers[l][n] - means[l])
template <typename T>
ELMO_MULTIVERSION void mix_tile(const T* const* layers, int64_t first, const T* factors, const T* means, int64_t count, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = factors[0] * (layers[0][first + i] - means[0]);
  for (int64_t l = 1; l < count; ++l) {
    const T* layer = layers[l] + first;
    const T factor = factors[l], mean = means[l];
    for (int64_t i = 0; i < n; ++i) out[i] += factor * (layer[i] - mean);
  }
}

template <typename T>
void mix(const std::vector<const T*>& layers, Shape shape, const Tensor& factors, const Tensor& means, T* out) {
  const int64_t count = static_cast<int64_t>(layers.size()), mixes = factors.size(0);
  const T* factor = factors.const_data_ptr<T>();
  const T* mean = means.const_data_ptr<T>();
  const int64_t tiles = (shape.elements() + kTile - 1) / kTile;
  parallel_for(tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTile, n = std::min(kTile, shape.elements() - first);
      for (int64_t m = 0; m < mixes; ++m)
        mix_tile<T>(layers.data(), first, factor + m * count, mean, count, out + m * shape.elements() + first, n);
    }
  });
}

std::tuple<Tensor, std::vector<Tensor>> scalar_mix_forward(
    TensorList layers_any, const Tensor& coefficients, const std::optional<Tensor>& counted, const std::optional<Tensor>& seed, bool layer_norm,
    double eps, double dropout) {
  const Arguments check("scalar_mix");
  check.need(!seed.has_value() && dropout == 0, "dropout is of GPUs; the CPU's kernel drops nothing");
  check_layers(check, layers_any);
  check_counted(check, counted, layers_any[0]);
  check.tensor("coefficients", coefficients, coefficients.scalar_type(), {kAny, static_cast<int64_t>(layers_any.size())});
  const auto layers = contiguous(layers_any);
  const auto shape = shape_of(layers[0]);
  const int64_t count = static_cast<int64_t>(layers.size());
  auto sizes = layers[0].sizes().vec();
  sizes.insert(sizes.begin(), coefficients.size(0));
  Tensor out = empty(sizes, layers[0].options());
  Tensor statistics = zeros({2, count}, layers[0].options().dtype(kDouble));
  std::fill_n(statistics.mutable_data_ptr<double>() + count, count, 1.0);
  by_type(out.scalar_type(), [&]<typename T>() {
    const auto p = pointers<T>(layers);
    if (layer_norm && shape.elements() > 0) {
      const int64_t positions = counted.has_value() ? count_of(*counted) : shape.positions;
      const double number = static_cast<double>(positions * shape.width);
      fill_statistics<T>(p, shape, data_or_null(counted), eps, number, statistics.mutable_data_ptr<double>());
    }
    const Tensor factors = coefficients.to(kDouble).mul(statistics[1]).to(out.scalar_type()).contiguous();
    mix<T>(p, shape, factors, statistics[0].to(out.scalar_type()), out.mutable_data_ptr<T>());
  });
  return {out, {statistics}};
}

// scalar_mix backward: one pass of sums (for the coefficients and through the statistics), one that writes the layers' gradients.

// sums[M, L + 1]: sum of dy_m * x_l over everything (x_l normalised), and sum of dy_m.
Tensor sums_of(const Tensor& grad, const std::vector<Tensor>& layers, const Tensor& statistics) {
  const auto shape = shape_of(layers[0]);
  const int64_t count = static_cast<int64_t>(layers.size()), mixes = grad.size(0);
  const double* mean = statistics.const_data_ptr<double>();
  Tensor sums = empty({mixes, count + 1}, statistics.options());
  by_type(grad.scalar_type(), [&]<typename T>() {
    const auto p = pointers<T>(layers);
    const auto* dy = grad.const_data_ptr<T>();
    const auto totals = block_sums(shape.blocks(), mixes * (count + 1), [&](int64_t block, double* partial) {
      const int64_t first = block * kPositions * shape.width;
      const int64_t n = std::min(shape.elements(), first + kPositions * shape.width) - first;
      for (int64_t m = 0; m < mixes; ++m) {
        const T* row = dy + m * shape.elements() + first;
        for (int64_t l = 0; l < count; ++l) partial[m * (count + 1) + l] = dot_of<T>(row, p[l] + first, n, mean[l]);
        partial[m * (count + 1) + count] = sum_of<T>(row, n);
      }
    });
    std::copy(totals.begin(), totals.end(), sums.mutable_data_ptr<double>());
  });
  sums.narrow(1, 0, count).mul_(statistics[1]);
  return sums;
}

// Per layer: d = inverse * (sum_m a_m dy_m), less shift + slope * (x - mean) at counted positions.
template <typename T>
struct LayerTerms {
  const T* factors;  // a_ml * inverse_l, M of them, `stride` apart
  int64_t stride;
  T mean, shift, slope;
};

template <typename T>
ELMO_MULTIVERSION void gradient_row(
    const T* dy, int64_t mix_stride, int64_t mixes, const T* x, const LayerTerms<T>& terms, bool counted, T* out, int64_t n) {
  const T first = terms.factors[0];
  for (int64_t i = 0; i < n; ++i) out[i] = first * dy[i];
  for (int64_t m = 1; m < mixes; ++m) {
    const T factor = terms.factors[m * terms.stride];
    const T* row = dy + m * mix_stride;
    for (int64_t i = 0; i < n; ++i) out[i] += factor * row[i];
  }
  if (!counted) return;
  const T mean = terms.mean, shift = terms.shift, slope = terms.slope;
  for (int64_t i = 0; i < n; ++i) out[i] -= shift + slope * (x[i] - mean);
}

template <typename T>
void layer_gradients(
    const T* dy, const std::vector<const T*>& layers, Shape shape, const std::vector<LayerTerms<T>>& terms, int64_t mixes,
    bool layer_norm, const bool* counted, const std::vector<T*>& out) {
  parallel_for(shape.positions, kPositions, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const bool counts = layer_norm && (counted == nullptr || counted[p]);
      const int64_t at = p * shape.width;
      for (size_t l = 0; l < layers.size(); ++l)
        gradient_row<T>(dy + at, shape.elements(), mixes, layers[l] + at, terms[l], counts, out[l] + at, shape.width);
    }
  });
}

std::vector<Tensor> all_layer_gradients(
    const Tensor& grad, const std::vector<Tensor>& layers, const Tensor& coefficients,
    const std::optional<Tensor>& counted, const Tensor& statistics, const Tensor& sums, bool layer_norm) {
  const auto shape = shape_of(layers[0]);
  const int64_t count = static_cast<int64_t>(layers.size()), mixes = grad.size(0);
  const Tensor a = coefficients.to(kDouble), inverse = statistics[1];
  const int64_t positions = counted.has_value() ? count_of(*counted) : shape.positions;
  const double number = static_cast<double>(std::max<int64_t>(1, positions * shape.width));
  // Sums over everything of d = sum_m a_m dy_m, and of d * x: what flows into mean and variance.
  const Tensor of_mean = a.mul(sums.narrow(1, count, 1)).contiguous(), of_variance = a.mul(sums.narrow(1, 0, count)).contiguous();
  std::vector<double> flow_mean(count), flow_variance(count);
  for (int64_t l = 0; l < count; ++l) {
    const double scale = inverse.const_data_ptr<double>()[l];
    for (int64_t m = 0; m < mixes; ++m) {
      flow_mean[l] += of_mean.const_data_ptr<double>()[m * count + l] * scale / number;
      flow_variance[l] += of_variance.const_data_ptr<double>()[m * count + l] * scale * scale / number;
    }
  }
  std::vector<Tensor> out;
  for (const auto& layer : layers) out.push_back(empty(layer.sizes(), layer.options()));
  if (mixes == 0) {  // nothing flows
    for (auto& gradient : out) gradient.zero_();
    return out;
  }
  by_type(grad.scalar_type(), [&]<typename T>() {
    const Tensor factors = a.mul(inverse).to(grad.scalar_type()).contiguous();
    std::vector<LayerTerms<T>> terms;
    std::vector<T*> targets;
    for (int64_t l = 0; l < count; ++l) {
      terms.push_back(
          {factors.const_data_ptr<T>() + l, count, static_cast<T>(statistics.const_data_ptr<double>()[l]),
           static_cast<T>(flow_mean[l]),
           static_cast<T>(flow_variance[l])});
      targets.push_back(out[l].mutable_data_ptr<T>());
    }
    layer_gradients<T>(
        grad.const_data_ptr<T>(), pointers<T>(layers), shape, terms, mixes, layer_norm, data_or_null(counted), targets);
  });
  return out;
}

std::tuple<std::vector<Tensor>, Tensor> scalar_mix_backward(
    const Tensor& grad_any, TensorList saved, TensorList layers_any, const Tensor& coefficients, const std::optional<Tensor>& counted,
    const std::optional<Tensor>& /*seed*/, bool layer_norm, double /*dropout*/, bool need_layers, bool need_coefficients) {
  const Arguments check("scalar_mix_backward");
  check.saved(saved, 1);
  const Tensor statistics = saved[0];
  check_gradient(check, grad_any, layers_any, statistics);
  check_counted(check, counted, layers_any[0]);
  check.tensor("coefficients", coefficients, coefficients.scalar_type(), {grad_any.size(0), statistics.size(1)});
  const auto layers = contiguous(layers_any);
  const Tensor grad = grad_any.contiguous(), sums = sums_of(grad, layers, statistics);
  std::vector<Tensor> d_layers;
  if (need_layers) d_layers = all_layer_gradients(grad, layers, coefficients, counted, statistics, sums, layer_norm);
  Tensor d_coefficients = empty({0}, coefficients.options());
  if (need_coefficients) d_coefficients = sums.narrow(1, 0, statistics.size(1)).to(coefficients.scalar_type()).clone();
  return {std::move(d_layers), std::move(d_coefficients)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("scalar_mix", ELMO_BOX(scalar_mix_forward));
  m.impl("scalar_mix_backward", ELMO_BOX(scalar_mix_backward));
}

}  // namespace elmo_fast
