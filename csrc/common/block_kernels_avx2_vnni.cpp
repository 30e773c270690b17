// AVX_VNNI: as AVX512_VNNI, on vectors of 32 bytes.
#include <immintrin.h>

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

struct Int8Quads : Integers<uint8_t, 4, 32, 6> {
  static __m256i load(const int8_t* w) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)); }
  static __m256i broadcast(const uint8_t* x) { return _mm256_set1_epi32(read<int>(x)); }
  static Sum add(Sum sum, __m256i x, __m256i w) {
    return reinterpret_cast<Sum>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum), x, w));
  }
};

}  // namespace

const BlockKernel kAvx2VnniKernel = multiply_block<Int8Quads>;

}  // namespace elmo_fast
