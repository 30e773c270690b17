// AVX2 with FMA and F16C.
#include "common/block_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct Float32 {
  using X = float;
  using W = float;
  using C = float;
  using Sum = __m256;
  static constexpr int kWidth = 8, kTerms = 1, kRows = 6;
  static Sum zero() { return _mm256_setzero_ps(); }
  static __m256 load(const float* w) { return _mm256_loadu_ps(w); }
  static __m256 broadcast(const float* x) { return _mm256_set1_ps(*x); }
  static Sum add(Sum sum, __m256 x, __m256 w) { return _mm256_fmadd_ps(x, w, sum); }
  static void store(float* c, Sum sum, bool accumulate) {
    _mm256_storeu_ps(c, accumulate ? _mm256_add_ps(_mm256_loadu_ps(c), sum) : sum);
  }
};

struct BFloat16Widened : Float32 {
  using W = uint16_t;
  static __m256 load(const uint16_t* w) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  }
};

struct Float16Widened : Float32 {
  using W = uint16_t;
  static __m256 load(const uint16_t* w) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))); }
};

struct Float64 {
  using X = double;
  using W = double;
  using C = double;
  using Sum = __m256d;
  static constexpr int kWidth = 4, kTerms = 1, kRows = 6;
  static Sum zero() { return _mm256_setzero_pd(); }
  static __m256d load(const double* w) { return _mm256_loadu_pd(w); }
  static __m256d broadcast(const double* x) { return _mm256_set1_pd(*x); }
  static Sum add(Sum sum, __m256d x, __m256d w) { return _mm256_fmadd_pd(x, w, sum); }
  static void store(double* c, Sum sum, bool accumulate) {
    _mm256_storeu_pd(c, accumulate ? _mm256_add_pd(_mm256_loadu_pd(c), sum) : sum);
  }
};

// Bytes widened to 16 bits, whose products are added in pairs: exact, where an addition of bytes' products would saturate. A column's two
// pairs stay apart until they are stored.
struct Int8Quads {
  using X = uint8_t;
  using W = int8_t;
  using C = int32_t;
  struct Vector {
    __m256i low, high;  // of four columns each
  };
  using Sum = Vector;
  static constexpr int kWidth = 8, kTerms = 4, kRows = 3;
  static Sum zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Vector load(const int8_t* w) {
    const auto* bytes = reinterpret_cast<const __m128i*>(w);
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)), _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1))};
  }
  static __m256i broadcast(const uint8_t* x) {
    int quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return _mm256_cvtepu8_epi16(_mm_set1_epi32(quad));
  }
  static Sum add(Sum sum, __m256i x, Vector w) {
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(x, w.low)), _mm256_add_epi32(sum.high, _mm256_madd_epi16(x, w.high))};
  }
  static void store(int32_t* c, Sum sum, bool accumulate) {
    const __m256i mixed = _mm256_hadd_epi32(sum.low, sum.high);  // columns 0 1 4 5 2 3 6 7
    const __m256i total = _mm256_permute4x64_epi64(mixed, 0b11011000);
    auto* target = reinterpret_cast<__m256i*>(c);
    _mm256_storeu_si256(target, accumulate ? _mm256_add_epi32(_mm256_loadu_si256(target), total) : total);
  }
};

}  // namespace

const BlockKernels kAvx2Kernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_block<Int8Quads>};

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernels kAvx2Kernels = {};
}

#endif
