// Armv8.6: BF16 (sums of bfloat16 pairs) and I8MM (sums of four products of bytes, one without a sign), on vectors of 16 bytes.
#include "common/block_kernels.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8)
#include <arm_neon.h>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

// Sums of pairs with the CPU's own rounding: it may round a pair's sum to odd, and flushes numbers below 1.2e-38 to zero.
struct BFloat16Pairs {
  using X = uint16_t;
  using W = uint16_t;
  using C = float;
  using Sum = float32x4_t;
  static constexpr int kWidth = 4, kTerms = 2, kVectors = 2, kRows = 12;
  static Sum zero() { return vdupq_n_f32(0.0f); }
  static bfloat16x8_t load(const uint16_t* w) { return vreinterpretq_bf16_u16(vld1q_u16(w)); }
  static bfloat16x8_t broadcast(const uint16_t* x) {
    uint32_t pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
  }
  static Sum add(Sum sum, bfloat16x8_t x, bfloat16x8_t w) { return vbfdotq_f32(sum, x, w); }
  static void store(float* c, Sum sum, bool accumulate) { vst1q_f32(c, accumulate ? vaddq_f32(vld1q_f32(c), sum) : sum); }
};

struct Int8Quads {
  using X = uint8_t;
  using W = int8_t;
  using C = int32_t;
  using Sum = int32x4_t;
  static constexpr int kWidth = 4, kTerms = 4, kVectors = 2, kRows = 12;
  static Sum zero() { return vdupq_n_s32(0); }
  static int8x16_t load(const int8_t* w) { return vld1q_s8(w); }
  static uint8x16_t broadcast(const uint8_t* x) {
    uint32_t quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return vreinterpretq_u8_u32(vdupq_n_u32(quad));
  }
  static Sum add(Sum sum, uint8x16_t x, int8x16_t w) { return vusdotq_s32(sum, x, w); }
  static void store(int32_t* c, Sum sum, bool accumulate) { vst1q_s32(c, accumulate ? vaddq_s32(vld1q_s32(c), sum) : sum); }
};

}  // namespace

const BlockKernel kNeonBf16Kernel = multiply_block<BFloat16Pairs>, kNeonI8mmKernel = multiply_block<Int8Quads>;

}  // namespace elmo_fast

#else

namespace elmo_fast {
const BlockKernel kNeonBf16Kernel = nullptr, kNeonI8mmKernel = nullptr;
}

#endif
