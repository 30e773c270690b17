// AVX_VNNI: as AVX512_VNNI, on vectors of 32 bytes.
#include "common/block_kernels.h"

#if defined(__AVXVNNI__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct Int8Quads {
  using X = uint8_t;
  using W = int8_t;
  using C = int32_t;
  using Sum = __m256i;
  static constexpr int kWidth = 8, kTerms = 4, kVectors = 2, kRows = 6;
  static Sum zero() { return _mm256_setzero_si256(); }
  static __m256i load(const int8_t* w) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)); }
  static __m256i broadcast(const uint8_t* x) {
    int quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return _mm256_set1_epi32(quad);
  }
  static Sum add(Sum sum, __m256i x, __m256i w) { return _mm256_dpbusd_avx_epi32(sum, x, w); }
  static void store(int32_t* c, Sum sum, bool accumulate) {
    auto* target = reinterpret_cast<__m256i*>(c);
    _mm256_storeu_si256(target, accumulate ? _mm256_add_epi32(_mm256_loadu_si256(target), sum) : sum);
  }
};

}  // namespace

const BlockKernel kAvx2VnniKernel = multiply_block<Int8Quads>;

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernel kAvx2VnniKernel = nullptr;
}

#endif
