// Loops over one row of logits (largest, exponentials and their sum; T is float or double), products of two rows, and sums over the rows of a
// matrix, for gradients of biases.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/block_kernels.h"
#include "common/operand.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast {

// The largest of x[n] and `start`.
template <typename T>
ELMO_MULTIVERSION static T largest_of(const T* x, int64_t n, T start) {
  T lanes[32];
  for (T& lane : lanes) lane = start;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int j = 0; j < 32; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  for (; i < n; ++i) start = x[i] > start ? x[i] : start;
  for (const T lane : lanes) start = lane > start ? lane : start;
  return start;
}

// exp(x - shift), exactly 0 for x = -infinity.
template <typename T>
ELMO_INLINE T exponential_of(T x, T shift) {
  return x == -std::numeric_limits<T>::infinity() ? T(0) : exp_of(x - shift);
}

// x <- exp(x - largest), zero for -inf; returns the sum.
template <typename T>
ELMO_MULTIVERSION static T exponentials(T* x, int64_t n, T largest) {
  T lanes[32] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int j = 0; j < 32; ++j) {
      const T e = exponential_of(x[i + j], largest);
      x[i + j] = e;
      lanes[j] += e;
    }
  }
  T sum = 0;
  for (; i < n; ++i) {
    x[i] = exponential_of(x[i], largest);
    sum += x[i];
  }
  for (const T lane : lanes) sum += lane;
  return sum;
}

// x <- exp(x - largest - log_sum), zero for -inf.
template <typename T>
ELMO_MULTIVERSION static void probabilities(T* x, int64_t n, T largest, T log_sum) {
  if (std::isnan(log_sum)) return (void)std::fill_n(x, n, log_sum);
  for (int64_t i = 0; i < n; ++i) x[i] = exponential_of(x[i] - largest, log_sum);
}

template <typename T>
ELMO_MULTIVERSION static void scale(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// The loss of a target with logit `true_logit` against others whose exp(logit - largest) sum to `sum`, and the logarithm of the sum of all,
// relative to `largest` too, which is not below `true_logit`: a log-sum of logits near 1e6 would be rounded to sixteenths.
template <typename T>
struct LogSum {
  T loss, log_sum;
};
template <typename T>
LogSum<T> log_sum_of(T true_logit, T largest, T sum) {
  const T total = sum + std::exp(true_logit - largest);
  if (std::isnan(total)) return {total, total};  // the target's logit, the largest, is infinite
  // If the target is the largest, log1p keeps the digits of a small loss.
  return {largest == true_logit ? std::log1p(sum) : (largest - true_logit) + std::log(total), std::log(total)};
}

// The product of two rows in `Lanes` chains of sums, for vectors of any width: n / Lanes roundings of each.
template <int Lanes, typename T>
ELMO_INLINE T product_of(const T* __restrict x, const T* __restrict w, int64_t n) {
  T lanes[Lanes] = {};
  int64_t i = 0;
  for (; i + Lanes <= n; i += Lanes)
    for (int j = 0; j < Lanes; ++j) lanes[j] += x[i + j] * w[i + j];
  T sum = 0;
  for (; i < n; ++i) sum += x[i] * w[i];
  for (int width = Lanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return sum + lanes[0];
}

template <typename T>
ELMO_MULTIVERSION static T dot(const T* x, const T* w, int64_t n) {
  return product_of<64>(x, w, n);
}

// n numbers as products see them: where they lie if those round nothing, else in `line`.
template <typename T>
const T* rounded_row(const T* w, T* line, int64_t n, Operand operand) {
  if (is_exact(operand)) return w;
  to_operands(w, line, n, operand == Operand::BFloat16Pairs ? Operand::BFloat16Widened : operand);
  return line;
}

constexpr int64_t kSumRows = 32;  // rows of one sum; longer sums are sums of these, in double: a single chain rounds at the size of the whole

template <typename T>
ELMO_MULTIVERSION static void add_rows(
    const T* __restrict x, const T* __restrict weights, int64_t rows, int64_t stride, double* __restrict sum, int64_t n) {
  T part[kBlock] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const T weight = weights == nullptr ? T(1) : weights[i];
    for (int64_t j = 0; j < n; ++j) part[j] += weight * x[i * stride + j];
  }
  for (int64_t j = 0; j < n; ++j) sum[j] += part[j];
}

// sums[n] += xᵀ[n, rows] · weights[rows], or the columns' sums where weights is undefined. x: any strides; weights: contiguous, of x's dtype;
// sums: double, contiguous. Added in one order whatever the number of threads.
inline void add_column_sums(const Tensor& any, const Tensor& weights, const Tensor& sums) {
  const Tensor x = any.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  auto* target = sums.mutable_data_ptr<double>();
  by_type(x.scalar_type(), [&]<typename T>() {
    const auto* source = x.const_data_ptr<T>();
    const auto* factors = weights.defined() ? weights.const_data_ptr<T>() : nullptr;
    parallel_for((columns + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kBlock; first < std::min(columns, end * kBlock); first += kBlock)
        for (int64_t row = 0; row < rows; row += kSumRows)
          add_rows<T>(
              source + row * columns + first, factors == nullptr ? nullptr : factors + row, std::min(kSumRows, rows - row), columns,
              target + first, std::min(kBlock, columns - first));
    });
  });
}

}  // namespace elmo_fast
