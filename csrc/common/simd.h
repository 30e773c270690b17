// Loops compiled for several instruction sets and chosen at load time, so that one binary serves every x86-64 and needs no
// -march=native.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ELMO_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ELMO_MULTIVERSION
#endif
#define ELMO_INLINE static inline __attribute__((always_inline))

namespace elmo_fast {

// e^x without branches, so that loops over it vectorise: x = k ln2 + r, Taylor series of degree 7 on |r| <= ln2/2
// (remainder below 6e-9). NaN stays NaN; beyond +-87 the result is held at the last normal numbers.
ELMO_INLINE float exp_of(float x) {
  const float bounded = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted = bounded * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are round(x / ln2)
  const float k = shifted - 12582912.0f;
  const float r = (bounded - k * 0.693145751953125f) - k * 1.42860682030941723e-6f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f) + 127) << 23;
  return p * std::bit_cast<float>(exponent);
}
ELMO_INLINE double exp_of(double x) { return std::exp(x); }

// 1/d for normal 1 <= d < 2^120: the exponent's mirror image is right to 12 %, three Newton steps square that to 1 ulp, always from
// below, and a fourth takes that bias away (it would add up over a sentence). Under half the time of a division; a cell needs five.
ELMO_INLINE float reciprocal_of(float d) {
  float y = std::bit_cast<float>(0x7ef311c7 - std::bit_cast<int32_t>(d));
  y = y + y * (1.0f - d * y);
  y = y + y * (1.0f - d * y);
  y = y + y * (1.0f - d * y);
  return y + y * (1.0f - d * y);
}

// Exactly 0 at -infinity, so that a gate there takes an infinity to NaN as IEEE's 0 · infinity does.
ELMO_INLINE float sigmoid_of(float x) {
  const float value = reciprocal_of(1.0f + exp_of(x < -80.0f ? 80.0f : -x));
  return x < -std::numeric_limits<float>::max() ? 0.0f : value;
}
ELMO_INLINE double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// tanh: below 0.625 an odd polynomial (minimax in relative error, 5e-9), where 1 - 2/(e^2x + 1) would cancel.
ELMO_INLINE float tanh_of(float x) {
  const float z = x * x;
  float p = -0.00566698f;
  p = p * z + 0.02060618f;
  p = p * z - 0.05373001f;
  p = p * z + 0.13331331f;
  p = p * z - 0.33333278f;
  const float small = x + x * (z * p);
  const float large = 1.0f - 2.0f * reciprocal_of(exp_of(x > 40.0f ? 80.0f : 2.0f * x) + 1.0f);
  return std::fabs(x) < 0.625f ? small : large;
}
ELMO_INLINE double tanh_of(double x) { return std::tanh(x); }

// torch.clamp: NaN passes through.
template <typename T>
ELMO_INLINE T clip_of(T x, T bound) {
  return x < -bound ? -bound : (x > bound ? bound : x);
}

// The nearest bfloat16 (ties to even).
ELMO_INLINE uint16_t bfloat16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : even);
}
ELMO_INLINE float bfloat16_value(float x) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat16_bits(x)) << 16); }

// The nearest float16 (ties to even; subnormals, and infinity above 65520, as in IEEE 754), stored as float.
ELMO_INLINE float float16_value(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u & 0x80000000u, magnitude = u & 0x7fffffffu;
  const float normal = std::bit_cast<float>((u + 0xfffu + ((u >> 13) & 1u)) & ~0x1fffu);
  const float shift = std::bit_cast<float>(sign | 0x3f000000u);  // 0.5, above which floats lie 2^-24 apart, as float16's subnormals
  const float subnormal = (x + shift) - shift;
  const float infinity = std::bit_cast<float>(sign | 0x7f800000u);
  const float finite = magnitude < 0x38800000u ? subnormal : (magnitude >= 0x477ff000u ? infinity : normal);
  return magnitude > 0x7f800000u ? x : finite;
}

// The bits of that number; of NaN a quiet one.
ELMO_INLINE uint16_t float16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(float16_value(x)), magnitude = u & 0x7fffffffu;
  const auto subnormal = static_cast<uint32_t>(std::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) * 16777216.0f);
  const uint32_t normal = (magnitude >> 13) - (112u << 10);
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t bits = magnitude < 0x38800000u ? subnormal : (magnitude >= 0x7f800000u ? special : normal);
  return static_cast<uint16_t>(bits | (u >> 16 & 0x8000u));
}

}  // namespace elmo_fast
