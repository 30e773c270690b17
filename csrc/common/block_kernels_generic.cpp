// Vectors of 16 bytes, which every CPU has: SSE2 on x86-64, NEON on aarch64.
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "common/block_forms.h"

namespace elmo_fast {
namespace {

#if defined(__aarch64__)
constexpr int kVectorRows = 12;  // of 32 registers, 24 hold sums
#else
constexpr int kVectorRows = 6;
#endif

using Float64 = Plain<double, 16, kVectorRows>;
using Float32 = Plain<float, 16, kVectorRows>;

typedef uint16_t Halves __attribute__((vector_size(8)));
typedef uint32_t Words __attribute__((vector_size(16)));

struct BFloat16Widened : Float32 {
  using W = uint16_t;
  static Sum load(const uint16_t* w) { return reinterpret_cast<Sum>(__builtin_convertvector(read<Halves>(w), Words) << 16); }
};

struct Float16Widened : Float32 {
  using W = uint16_t;
  // Exponent and fraction moved into a float's, times 2^112 for the difference of the exponents' biases; infinity and NaN keep theirs.
  static Sum load(const uint16_t* w) {
    const Words bits = __builtin_convertvector(read<Halves>(w), Words), magnitude = bits & 0x7fffu;
    const Words finite = reinterpret_cast<Words>(reinterpret_cast<Sum>(magnitude << 13) * 0x1p112f);
    const Words special = reinterpret_cast<Words>(magnitude >= 0x7c00u);
    return reinterpret_cast<Sum>((finite & ~special) | (((magnitude << 13) | 0x7f800000u) & special) | (bits & 0x8000u) << 16);
  }
};

// Bytes widened to 16 bits, whose products are added in pairs to 32 bits.
struct Int8Widened : Integers<int16_t, 2, 16, kVectorRows> {
  typedef int16_t Pairs __attribute__((vector_size(16)));
  typedef int8_t Bytes __attribute__((vector_size(8)));
  static Pairs load(const int8_t* w) { return __builtin_convertvector(read<Bytes>(w), Pairs); }
  static Pairs broadcast(const int16_t* x) { return reinterpret_cast<Pairs>(zero() + read<int32_t>(x)); }
  static Sum add(Sum sum, Pairs x, Pairs w) {
#if defined(__SSE2__)
    return sum + reinterpret_cast<Sum>(__builtin_ia32_pmaddwd128(x, w));
#elif defined(__aarch64__)
    return reinterpret_cast<Sum>(vpadalq_s16(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<int16x8_t>(x * w)));  // within 127 * 127
#else
    const Sum even = reinterpret_cast<Sum>(x) << 16 >> 16, odd = reinterpret_cast<Sum>(x) >> 16;
    return sum + even * (reinterpret_cast<Sum>(w) << 16 >> 16) + odd * (reinterpret_cast<Sum>(w) >> 16);
#endif
  }
};

}  // namespace

const BlockKernels kGenericKernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_block<Int8Widened>};

}  // namespace elmo_fast
