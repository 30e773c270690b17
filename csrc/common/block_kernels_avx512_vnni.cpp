// AVX512_VNNI: four products of bytes, one without a sign, added to 32 bits without rounding or saturation.
#include "common/block_kernels.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct Int8Quads {
  using X = uint8_t;
  using W = int8_t;
  using C = int32_t;
  using Sum = __m512i;
  static constexpr int kWidth = 16, kTerms = 4, kVectors = 2, kRows = 12;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i load(const int8_t* w) { return _mm512_loadu_si512(w); }
  static __m512i broadcast(const uint8_t* x) {
    int quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return _mm512_set1_epi32(quad);
  }
  static Sum add(Sum sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static void store(int32_t* c, Sum sum, bool accumulate) {
    _mm512_storeu_si512(c, accumulate ? _mm512_add_epi32(_mm512_loadu_si512(c), sum) : sum);
  }
};

}  // namespace

const BlockKernel kAvx512VnniKernel = multiply_block<Int8Quads>;

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernel kAvx512VnniKernel = nullptr;
}

#endif
