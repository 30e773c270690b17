// AVX-512, and AVX512_BF16 where the compiler's flags for this file have it.
#include "common/block_kernels.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct Float32 {
  using X = float;
  using W = float;
  using C = float;
  using Sum = __m512;
  static constexpr int kWidth = 16, kTerms = 1, kRows = 12;
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
  static constexpr int kWidth = 8, kTerms = 1, kRows = 12;
  static Sum zero() { return _mm512_setzero_pd(); }
  static __m512d load(const double* w) { return _mm512_loadu_pd(w); }
  static __m512d broadcast(const double* x) { return _mm512_set1_pd(*x); }
  static Sum add(Sum sum, __m512d x, __m512d w) { return _mm512_fmadd_pd(x, w, sum); }
  static void store(double* c, Sum sum, bool accumulate) {
    _mm512_storeu_pd(c, accumulate ? _mm512_add_pd(_mm512_loadu_pd(c), sum) : sum);
  }
};

}  // namespace

const BlockKernels kAvx512Kernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    nullptr};  // int8 without VNNI: AVX2 has the 16-bit products that AVX-512F lacks

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernels kAvx512Kernels = {};
}

#endif
