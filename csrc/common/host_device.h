// Shared by headers that both nvcc and a plain C++ compiler read: the same arithmetic and the same index maps on GPU and CPU.
#pragma once

#include <cstdint>
#include <cstring>

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

// float32 rounded to 16 bits and back, to nearest, ties to even: the numbers that torch's casts give, by bits.
enum class Rounding : int { Float32, BFloat16, Float16 };

ELMO_HOST_DEVICE inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
ELMO_HOST_DEVICE inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// Drops the `count` lowest bits of a magnitude.
ELMO_HOST_DEVICE constexpr uint32_t without_low_bits(uint32_t magnitude, int count) {
  const uint32_t half = uint32_t{1} << (count - 1), odd = (magnitude >> count) & 1u;
  return (magnitude + half - 1 + odd) >> count << count;
}

ELMO_HOST_DEVICE inline float rounded_to(float x, Rounding rounding) {
  const uint32_t sign = bits_of(x) & 0x80000000u, magnitude = bits_of(x) & 0x7fffffffu;
  if (rounding == Rounding::Float32 || magnitude >= 0x7f800000u) return x;  // NaN and infinity stay
  if (rounding == Rounding::BFloat16) return float_of(sign | without_low_bits(magnitude, 16));
  if (magnitude < 0x38800000u) {  // below 2^-14 float16 counts in steps of 2^-24: adding 0.75 leaves exactly those
    const float shifted = float_of(magnitude) + 0.75f;
    return float_of(sign | bits_of(shifted - 0.75f));
  }
  const uint32_t result = without_low_bits(magnitude, 13);
  return float_of(sign | (result > 0x477fe000u ? 0x7f800000u : result));  // above 65504: infinity
}

}  // namespace elmo_fast
