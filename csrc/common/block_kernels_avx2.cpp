// AVX2 with FMA and F16C.
#include <immintrin.h>

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

using Float64 = Plain<double, 32, 6>;
using Float32 = Plain<float, 32, 6>;

// 16 columns at a time, the even ones and the odd ones apart until they are stored: one load, one shift, one mask.
struct BFloat16Widened {
  using X = float;
  using W = uint16_t;
  using C = float;
  struct Vector {
    __m256 even, odd;
  };
  using Sum = Vector;
  static constexpr int kWidth = 16, kTerms = 1, kVectors = 1, kRows = 6;
  static Sum zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vector load(const uint16_t* w) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)), _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-65536)))};
  }
  static __m256 broadcast(const float* x) { return _mm256_set1_ps(*x); }
  static Sum add(Sum sum, __m256 x, Vector w) { return {_mm256_fmadd_ps(x, w.even, sum.even), _mm256_fmadd_ps(x, w.odd, sum.odd)}; }
  static void store(float* c, Sum sum, bool accumulate) {
    const __m256 low = _mm256_unpacklo_ps(sum.even, sum.odd), high = _mm256_unpackhi_ps(sum.even, sum.odd);  // of each half
    Float32::store(c, _mm256_permute2f128_ps(low, high, 0x20), accumulate);
    Float32::store(c + 8, _mm256_permute2f128_ps(low, high, 0x31), accumulate);
  }
};

struct Float16Widened : Float32 {
  using W = uint16_t;
  static __m256 load(const uint16_t* w) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))); }
};

// Bytes widened to 16 bits, whose products are added in pairs: exact, where an addition of bytes' products would saturate.
struct Int8Widened : Integers<int16_t, 2, 32, 6> {
  static __m256i load(const int8_t* w) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))); }
  static __m256i broadcast(const int16_t* x) { return _mm256_set1_epi32(read<int>(x)); }
  static Sum add(Sum sum, __m256i x, __m256i w) { return sum + reinterpret_cast<Sum>(_mm256_madd_epi16(x, w)); }
};

}  // namespace

const BlockKernels kAvx2Kernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_block<Int8Widened>};

}  // namespace elmo_fast
