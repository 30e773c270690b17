// AVX512_VNNI: four products of bytes, one without a sign, added to 32 bits without rounding or saturation.
#include <immintrin.h>

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

struct Int8Quads : Integers<uint8_t, 4, 64, 12> {
  static __m512i load(const int8_t* w) { return _mm512_loadu_si512(w); }
  static __m512i broadcast(const uint8_t* x) { return _mm512_set1_epi32(read<int>(x)); }
  static Sum add(Sum sum, __m512i x, __m512i w) { return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), x, w)); }
};

}  // namespace

const BlockKernel kAvx512VnniKernel = multiply_block<Int8Quads>;

}  // namespace elmo_fast
