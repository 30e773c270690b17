// scalar_mix backward: one pass of sums (for the coefficients and through the statistics), one that writes the layers' gradients.

#include "scalar_mix/common.h"

namespace elmo_fast {
namespace {
using namespace scalar_mix;

template <typename T>
ELMO_MULTIVERSION double dot_of(const T* a, const T* b, int64_t n, double mean) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += static_cast<double>(a[i + j]) * (static_cast<double>(b[i + j]) - mean);
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(a[i]) * (static_cast<double>(b[i]) - mean);
  for (const double lane : lanes) sum += lane;
  return sum;
}

// sums[M, L + 1]: sum of dy_m * x_l over everything (x_l normalised), and sum of dy_m.
Tensor sums_of(const Tensor& grad, const std::vector<Tensor>& layers, const Tensor& statistics) {
  const auto shape = shape_of(layers[0]);
  const int64_t count = static_cast<int64_t>(layers.size()), mixes = grad.size(0);
  const double* mean = statistics.const_data_ptr<double>();
  Tensor sums = empty({mixes, count + 1}, statistics.options());
  ELMO_DISPATCH_FLOATING(grad.scalar_type(), [&] {
    const auto p = pointers<scalar_t>(layers);
    const auto* dy = grad.const_data_ptr<scalar_t>();
    const auto totals = block_sums(shape.blocks(), mixes * (count + 1), [&](int64_t block, double* partial) {
      const int64_t first = block * kPositions * shape.width;
      const int64_t n = std::min(shape.elements(), first + kPositions * shape.width) - first;
      for (int64_t m = 0; m < mixes; ++m) {
        const scalar_t* row = dy + m * shape.elements() + first;
        for (int64_t l = 0; l < count; ++l) partial[m * (count + 1) + l] = dot_of<scalar_t>(row, p[l] + first, n, mean[l]);
        partial[m * (count + 1) + count] = sum_of<scalar_t>(row, n);
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
  const Tensor flow_mean = a.mul(sums.narrow(1, count, 1)).sum(0).mul(inverse).div(number).contiguous();
  const Tensor flow_variance = a.mul(sums.narrow(1, 0, count)).sum(0).mul(inverse.mul(inverse)).div(number).contiguous();
  std::vector<Tensor> out;
  for (const auto& layer : layers) out.push_back(empty(layer.sizes(), layer.options()));
  if (mixes == 0) {  // nothing flows
    for (auto& gradient : out) gradient.zero_();
    return out;
  }
  ELMO_DISPATCH_FLOATING(grad.scalar_type(), [&] {
    const Tensor factors = a.mul(inverse).to(grad.scalar_type()).contiguous();
    std::vector<LayerTerms<scalar_t>> terms;
    std::vector<scalar_t*> targets;
    for (int64_t l = 0; l < count; ++l) {
      terms.push_back(
          {factors.const_data_ptr<scalar_t>() + l, count, static_cast<scalar_t>(statistics.const_data_ptr<double>()[l]),
           static_cast<scalar_t>(flow_mean.const_data_ptr<double>()[l]),
           static_cast<scalar_t>(flow_variance.const_data_ptr<double>()[l])});
      targets.push_back(out[l].mutable_data_ptr<scalar_t>());
    }
    layer_gradients<scalar_t>(
        grad.const_data_ptr<scalar_t>(), pointers<scalar_t>(layers), shape, terms, mixes, layer_norm, data_or_null(counted), targets);
  });
  return out;
}

std::tuple<std::vector<Tensor>, Tensor> scalar_mix_backward(
    const Tensor& grad_any, TensorList layers_any, const Tensor& coefficients, const std::optional<Tensor>& counted,
    const Tensor& statistics, bool layer_norm, bool need_layers, bool need_coefficients) {
  const Arguments check("scalar_mix_backward");
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
  m.impl("scalar_mix_backward", ELMO_BOX(scalar_mix_backward));
}

}  // namespace elmo_fast
