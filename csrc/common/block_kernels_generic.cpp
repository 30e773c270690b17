// Vectors of 16 bytes, which every CPU has: SSE2 on x86-64, NEON on aarch64.
#include <cstring>

#include "common/block_product.h"

namespace elmo_fast {
namespace {

#if defined(__aarch64__)
constexpr int kVectorRows = 12;  // of 32 registers, 24 hold sums
#else
constexpr int kVectorRows = 6;
#endif

template <typename To, typename From>
To read(const From* from) {
  To value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T, int Width>
struct Whole {
  using X = T;
  using W = T;
  using C = T;
  typedef T Sum __attribute__((vector_size(16)));
  static constexpr int kWidth = Width, kTerms = 1, kRows = kVectorRows;
  static Sum zero() { return Sum{}; }
  static Sum load(const T* w) { return read<Sum>(w); }
  static T broadcast(const T* x) { return *x; }
  static Sum add(Sum sum, T x, Sum w) { return sum + x * w; }
  static void store(T* c, Sum sum, bool accumulate) {
    const Sum total = accumulate ? read<Sum>(c) + sum : sum;
    std::memcpy(c, &total, sizeof(total));
  }
};
using Float64 = Whole<double, 2>;
using Float32 = Whole<float, 4>;

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

// One column at a time: compilers vectorise the sum of four products badly, and no CPU that matters has nothing newer.
void multiply_int8(const BlockProduct& p) {
  const auto* x = static_cast<const uint8_t*>(p.x);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t column = 0; column < kBlock; ++column) {
      const auto* w = static_cast<const int8_t*>(p.w) + column / kGroup * p.group + column % kGroup * 4;
      int32_t sum = 0;
      for (int64_t k = 0; k < p.terms; ++k) sum += x[i * p.ldx + k] * w[k / 4 * kGroup * 4 + k % 4];
      int32_t& target = static_cast<int32_t*>(p.c)[i * p.ldc + column];
      target = p.accumulate ? target + sum : sum;
    }
}

}  // namespace

const BlockKernels kGenericKernels = {
    multiply_block<Float64>, multiply_block<Float32>, multiply_block<BFloat16Widened>, multiply_block<Float16Widened>,
    multiply_int8};

}  // namespace elmo_fast
