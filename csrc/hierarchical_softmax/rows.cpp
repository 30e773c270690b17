#include "hierarchical_softmax/rows.h"

#include "common/simd.h"

namespace elmo_fast::hierarchical {
namespace {

template <Rounding R>
ELMO_INLINE float rounded(float x) {
  return R == Rounding::None ? x : R == Rounding::BFloat16 ? bfloat16_value(x) : float16_value(x);
}
template <Rounding R>
ELMO_INLINE double rounded(double x) {
  return x;
}

// 64 chains of sums: vectors of any width, and D/64 roundings of each.
template <typename T, Rounding R>
ELMO_MULTIVERSION T dot_loop(const T* x, const T* w, int64_t n) {
  T lanes[64] = {};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int j = 0; j < 64; ++j) lanes[j] += x[i + j] * rounded<R>(w[i + j]);
  T sum = 0;
  for (; i < n; ++i) sum += x[i] * rounded<R>(w[i]);
  for (int width = 32; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return sum + lanes[0];
}

template <typename T, Rounding R>
ELMO_MULTIVERSION void add_loop(T* y, T a, const T* w, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * rounded<R>(w[i]);
}

}  // namespace

template <typename T>
T dot(const T* x, const T* w, int64_t n, Rounding rounding) {
  if (rounding == Rounding::None) return dot_loop<T, Rounding::None>(x, w, n);
  return rounding == Rounding::BFloat16 ? dot_loop<T, Rounding::BFloat16>(x, w, n) : dot_loop<T, Rounding::Float16>(x, w, n);
}

template <typename T>
void add_scaled(T* y, T a, const T* w, int64_t n, Rounding rounding) {
  if (rounding == Rounding::None)
    add_loop<T, Rounding::None>(y, a, w, n);
  else if (rounding == Rounding::BFloat16)
    add_loop<T, Rounding::BFloat16>(y, a, w, n);
  else
    add_loop<T, Rounding::Float16>(y, a, w, n);
}

template float dot<float>(const float*, const float*, int64_t, Rounding);
template double dot<double>(const double*, const double*, int64_t, Rounding);
template void add_scaled<float>(float*, float, const float*, int64_t, Rounding);
template void add_scaled<double>(double*, double, const double*, int64_t, Rounding);

}  // namespace elmo_fast::hierarchical
