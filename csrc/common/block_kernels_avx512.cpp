// AVX-512 with its instructions on 16 bits (AVX512BW).
#include "common/block_kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct Float32 {
  using X = float;
  using W = float;
  using C = float;
  using Sum = __m512;
  static constexpr int kWidth = 16, kTerms = 1, kVectors = 2, kRows = 12;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512 load(const float* w) { return _mm512_loadu_ps(w); }
  static __m512 broadcast(const float* x) { return _mm512_set1_ps(*x); }
  static Sum add(Sum sum, __m512 x, __m512 w) { return _mm512_fmadd_ps(x, w, sum); }
  static void store(float* c, Sum sum, bool accumulate) {
    _mm512_storeu_ps(c, accumulate ? _mm512_add_ps(_mm512_loadu_ps(c), sum) : sum);
  }
};

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

struct Float64 {
  using X = double;
  using W = double;
  using C = double;
  using Sum = __m512d;
  static constexpr int kWidth = 8, kTerms = 1, kVectors = 2, kRows = 12;
  static Sum zero() { return _mm512_setzero_pd(); }
  static __m512d load(const double* w) { return _mm512_loadu_pd(w); }
  static __m512d broadcast(const double* x) { return _mm512_set1_pd(*x); }
  static Sum add(Sum sum, __m512d x, __m512d w) { return _mm512_fmadd_pd(x, w, sum); }
  static void store(double* c, Sum sum, bool accumulate) {
    _mm512_storeu_pd(c, accumulate ? _mm512_add_pd(_mm512_loadu_pd(c), sum) : sum);
  }
};

// Bytes widened to 16 bits, whose products are added in pairs: exact, where an addition of bytes' products would saturate.
struct Int8Widened {
  using X = int16_t;
  using W = int8_t;
  using C = int32_t;
  using Sum = __m512i;
  static constexpr int kWidth = 16, kTerms = 2, kVectors = 2, kRows = 12;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i load(const int8_t* w) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))); }
  static __m512i broadcast(const int16_t* x) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  static Sum add(Sum sum, __m512i x, __m512i w) { return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w)); }
  static void store(int32_t* c, Sum sum, bool accumulate) {
    _mm512_storeu_si512(c, accumulate ? _mm512_add_epi32(_mm512_loadu_si512(c), sum) : sum);
  }
};

}  // namespace

const BlockKernels kAvx512Kernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_block<Int8Widened>};

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernels kAvx512Kernels = {};
}

#endif
