// What a header needs that both nvcc and a plain C++ compiler read: the same arithmetic and the same index maps on GPU and CPU.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ELMO_HOST_DEVICE __host__ __device__
#define ELMO_UNROLL _Pragma("unroll")
#else
#define ELMO_HOST_DEVICE
#define ELMO_UNROLL _Pragma("GCC unroll 16")
#endif

namespace elmo_fast {

ELMO_HOST_DEVICE constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

template <typename T>
ELMO_HOST_DEVICE constexpr T clamped(T x, T least, T most) {
  return x < least ? least : (x > most ? most : x);
}

ELMO_HOST_DEVICE inline int bits_set(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __popc(x);
#else
  return __builtin_popcount(x);
#endif
}

}  // namespace elmo_fast
