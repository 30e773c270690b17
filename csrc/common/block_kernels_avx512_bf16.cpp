// AVX512_BF16: pairs of bfloat16, summed in float32. Two rounded additions a pair; numbers below 1.2e-38 count as zero, as on AMX.
#include <immintrin.h>

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

struct BFloat16Pairs : Sums<float, 64, 12> {
  using X = uint16_t;
  using W = uint16_t;
  static constexpr int kTerms = 2;
  static __m512bh load(const uint16_t* w) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)); }
  static __m512bh broadcast(const uint16_t* x) { return reinterpret_cast<__m512bh>(_mm512_set1_epi32(read<int>(x))); }
  static Sum add(Sum sum, __m512bh x, __m512bh w) { return _mm512_dpbf16_ps(sum, x, w); }
};

}  // namespace

const BlockKernel kAvx512Bf16Kernel = multiply_block<BFloat16Pairs>;

}  // namespace elmo_fast
