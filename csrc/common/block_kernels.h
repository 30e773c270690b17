// A product with 64 packed columns, for each instruction set. Nothing here may include what other sources share: these are compiled with
// flags of their own, and an inline function of torch or of the standard library would carry them into the whole program.
#pragma once

#include <cstdint>

namespace elmo_fast {

constexpr int64_t kBlock = 64;  // columns of a block
constexpr int64_t kGroup = 16;  // columns that lie side by side in memory

// c[m, 64] (+)= x[m, terms] · w[terms, 64]; w: four groups, `group` elements apart, each [units][16][terms of a unit]. A unit is one term,
// or a pair of bfloat16, or a pair of int8 of which x holds 16 bits, or four of int8 of which x holds q + 128; of int8, c is int32.
struct BlockProduct {
  int64_t m, terms;
  const void* x;
  int64_t ldx;
  const void* w;
  int64_t group;
  bool prefetch;  // whether memory goes on past this block: the next one is prefetched
  void* c;
  int64_t ldc;
  bool accumulate;
};
using BlockKernel = void (*)(const BlockProduct&);

// One per way in which operands are held (operand.h).
struct BlockKernels {
  BlockKernel float64, float32, bfloat16_widened, float16_widened, int8_widened;
};
extern const BlockKernels kGenericKernels, kAvx2Kernels, kAvx512Kernels;
extern const BlockKernel kAvx512Bf16Kernel;  // of bfloat16 pairs
extern const BlockKernel kAvx2VnniKernel, kAvx512VnniKernel;  // of int8 in fours

}  // namespace elmo_fast
