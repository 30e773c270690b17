#include "negative_sampling/slopes.h"

#include <limits>

#include "common/simd.h"

namespace elmo_fast::negative_sampling {
namespace {

constexpr int kLanes = 32, kSteps = 64;  // 64 factors of at most 2: no product leaves a float's range

template <typename T>
ELMO_INLINE T exponential_of(T x) {
  return x == -std::numeric_limits<T>::infinity() ? T(0) : exp_of(x < 0 ? x : -x);
}

template <typename T>
ELMO_INLINE T slope_of(T x, T e) {
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), and a sum of logarithms is the logarithm of a product: P = prod (1 + e) - 1 is carried, whose
// digits a small e does not lose, and the logarithm is taken once for kSteps factors.
template <typename T, bool keep>
ELMO_INLINE T block_sum(T* x, int64_t n) {
  T positive[kLanes] = {}, product[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const T each = x[i + j], e = exponential_of(each);
      positive[j] += each > 0 ? each : T(0);
      product[j] = product[j] + e * (T(1) + product[j]);
      if (keep) x[i + j] = slope_of(each, e);
    }
  }
  double sum = 0;
  for (; i < n; ++i) {
    const T each = x[i], e = exponential_of(each);
    sum += (each > 0 ? each : T(0)) + std::log1p(static_cast<double>(e));
    if (keep) x[i] = slope_of(each, e);
  }
  for (int j = 0; j < kLanes; ++j) sum += positive[j] + std::log1p(static_cast<double>(product[j]));
  return static_cast<T>(sum);
}

template <typename T, bool keep>
ELMO_MULTIVERSION T sum_loop(T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kLanes * kSteps) sum += block_sum<T, keep>(x + i, n - i < kLanes * kSteps ? n - i : kLanes * kSteps);
  return static_cast<T>(sum);
}

template <typename T>
ELMO_MULTIVERSION void slopes_loop(T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = slope_of(x[i], exponential_of(x[i]));
}

}  // namespace

template <typename T>
T softplus_sum(T* x, int64_t n, bool keep) {
  return keep ? sum_loop<T, true>(x, n) : sum_loop<T, false>(x, n);
}
template <typename T>
void slopes(T* x, int64_t n) {
  slopes_loop<T>(x, n);
}
template float softplus_sum<float>(float*, int64_t, bool);
template double softplus_sum<double>(double*, int64_t, bool);
template void slopes<float>(float*, int64_t);
template void slopes<double>(double*, int64_t);

}  // namespace elmo_fast::negative_sampling
