// AVX512_BF16: pairs of bfloat16, summed in float32. Two rounded additions a pair; numbers below 1.2e-38 count as zero, as on AMX.
#include "common/block_kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

struct BFloat16Pairs {
  using X = uint16_t;
  using W = uint16_t;
  using C = float;
  using Sum = __m512;
  static constexpr int kWidth = 16, kTerms = 2, kVectors = 2, kRows = 12;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512bh load(const uint16_t* w) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)); }
  static __m512bh broadcast(const uint16_t* x) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static Sum add(Sum sum, __m512bh x, __m512bh w) { return _mm512_dpbf16_ps(sum, x, w); }
  static void store(float* c, Sum sum, bool accumulate) {
    _mm512_storeu_ps(c, accumulate ? _mm512_add_ps(_mm512_loadu_ps(c), sum) : sum);
  }
};

}  // namespace

const BlockKernel kAvx512Bf16Kernel = multiply_block<BFloat16Pairs>;

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernel kAvx512Bf16Kernel = nullptr;
}

#endif
