// AVX-512 with its instructions on 16 bits (AVX512BW).
#include <immintrin.h>

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

using Float64 = Plain<double, 64, 12>;
using Float32 = Plain<float, 64, 12>;

struct BFloat16Widened : Float32 {
  using W = uint16_t;
  static __m512 load(const uint16_t* w) {
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  }
};

struct Float16Widened : Float32 {
  using W = uint16_t;
  static __m512 load(const uint16_t* w) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))); }
};

// Bytes widened to 16 bits, whose products are added in pairs: exact, where an addition of bytes' products would saturate.
struct Int8Widened : Integers<int16_t, 2, 64, 12> {
  static __m512i load(const int8_t* w) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))); }
  static __m512i broadcast(const int16_t* x) { return _mm512_set1_epi32(read<int>(x)); }
  static Sum add(Sum sum, __m512i x, __m512i w) { return sum + reinterpret_cast<Sum>(_mm512_madd_epi16(x, w)); }
};

}  // namespace

const BlockKernels kAvx512Kernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_block<Int8Widened>};

}  // namespace elmo_fast
