// scalar_mix forward: statistics of each layer (two passes, double), then all mixes from one read of the layers.

#include <cmath>

#include "scalar_mix/common.h"

namespace elmo_fast {
namespace {
using namespace scalar_mix;

template <typename T>
ELMO_MULTIVERSION double squares_of(const T* x, int64_t n, double mean) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const double d = static_cast<double>(x[i + j]) - mean;
      lanes[j] += d * d;
    }
  }
  double sum = 0;
  for (; i < n; ++i) sum += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  for (const double lane : lanes) sum += lane;
  return sum;
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

std::tuple<Tensor, Tensor> scalar_mix_forward(
    TensorList layers_any, const Tensor& coefficients, const std::optional<Tensor>& counted, bool layer_norm, double eps) {
  const Arguments check("scalar_mix");
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
  ELMO_DISPATCH_FLOATING(out.scalar_type(), [&] {
    const auto p = pointers<scalar_t>(layers);
    if (layer_norm && shape.elements() > 0) {
      const int64_t positions = counted.has_value() ? count_of(*counted) : shape.positions;
      const double number = static_cast<double>(positions * shape.width);
      fill_statistics<scalar_t>(p, shape, data_or_null(counted), eps, number, statistics.mutable_data_ptr<double>());
    }
    const Tensor factors = coefficients.to(kDouble).mul(statistics[1]).to(out.scalar_type()).contiguous();
    mix<scalar_t>(p, shape, factors, statistics[0].to(out.scalar_type()), out.mutable_data_ptr<scalar_t>());
  });
  return {out, statistics};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("scalar_mix", ELMO_BOX(scalar_mix_forward)); }

}  // namespace elmo_fast
