// What both passes of negative_sampling do with a row of scores: ln(1 + e^x) and its slope σ(x), from one exponential.
#pragma once

#include <cmath>
#include <cstdint>

namespace elmo_fast::negative_sampling {

// x[n] <- σ(x) (where `keep`, else left); returns the sum of ln(1 + e^x), to which -infinity adds nothing.
template <typename T>
T softplus_sum(T* x, int64_t n, bool keep);
// x[n] <- σ(x).
template <typename T>
void slopes(T* x, int64_t n);

template <typename T>
inline T softplus(T x) {
  return (x > 0 ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}

// σ(x).
template <typename T>
inline T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

}  // namespace elmo_fast::negative_sampling
