#include "common/row_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/simd.h"

namespace elmo_fast {
namespace {

template <typename T>
ELMO_MULTIVERSION T largest_loop(const T* x, int64_t n, T start) {
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

template <typename T>
ELMO_MULTIVERSION T exponentials_loop(T* x, int64_t n, T largest) {
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

template <typename T>
ELMO_MULTIVERSION void probabilities_loop(T* x, int64_t n, T largest, T log_sum) {
  if (std::isnan(log_sum)) return (void)std::fill_n(x, n, log_sum);
  for (int64_t i = 0; i < n; ++i) x[i] = exponential_of(x[i] - largest, log_sum);
}

template <typename T>
ELMO_MULTIVERSION void scale_loop(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

template <typename T>
T largest_of(const T* x, int64_t n, T start) {
  return largest_loop<T>(x, n, start);
}
template <typename T>
T exponentials(T* x, int64_t n, T largest) {
  return exponentials_loop<T>(x, n, largest);
}
template <typename T>
void probabilities(T* x, int64_t n, T largest, T log_sum) {
  probabilities_loop<T>(x, n, largest, log_sum);
}
template <typename T>
void scale(T* x, int64_t n, T factor) {
  scale_loop<T>(x, n, factor);
}

template <typename T>
LogSum<T> log_sum_of(T true_logit, T largest, T sum) {
  const T total = sum + std::exp(true_logit - largest);
  if (std::isnan(total)) return {total, total};  // the target's logit, the largest, is infinite
  // Where the target is the largest, log1p keeps the digits of a small loss.
  return {largest == true_logit ? std::log1p(sum) : (largest - true_logit) + std::log(total), std::log(total)};
}

#define INSTANTIATE(T)                               \
  template T largest_of<T>(const T*, int64_t, T);    \
  template T exponentials<T>(T*, int64_t, T);        \
  template void probabilities<T>(T*, int64_t, T, T); \
  template void scale<T>(T*, int64_t, T);            \
  template LogSum<T> log_sum_of<T>(T, T, T);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace elmo_fast
