// The instruction sets that products are written for, and how the operands are held: the numbers that `precision` asks for, in the type that
// this CPU multiplies.
#pragma once

#include <string>
#include <vector>

#include "common/block_kernels.h"
#include "common/tensor.h"

namespace elmo_fast {

struct InstructionSet {
  const char* name;
  bool (*is_here)();  // true if this CPU and system support it
  const BlockKernels& kernels;
  BlockKernel bfloat16_pairs, int8_quads;  // null: the widened kernels serve
  bool tiles;                              // true if both come from tiles.h
};

// The fastest that this CPU and system have, or the slower one that ELMO_FAST_ISA or limit_isa names. Raises where ELMO_FAST_ISA names none
// or one that this CPU lacks.
const InstructionSet& isa();

// The names of those that this CPU has, slowest first.
std::vector<std::string> isa_names();

// For tests: products use this one from now on; "" takes the fastest again.
void limit_isa(const std::string& name);

enum class Operand {
  Float64,          // as they are
  Float32,          // as they are
  BFloat16Pairs,    // both as bfloat16, multiplied in pairs (AVX512_BF16, AMX), summed in float32
  BFloat16Widened,  // rounded to bfloat16; the packed one held in 16 bits and widened in registers, the other held as float32
  Float16Widened,   // likewise, rounded to float16
  Int8Quads,        // integers within 127 times a scale, of each row of the left one and of each column of the packed one; in fours
  Int8Widened,      // the same integers; the packed ones held in bytes and widened in registers, the others held in 16 bits
};

// Operands that `precision` ("float32" | "bfloat16" | "float16") selects for tensors of this dtype on this CPU. "int8" is for inference: only if
// the caller allows it.
Operand resolve_operand(const std::string& precision, ScalarType dtype, bool allow_int8 = false);

inline bool is_exact(Operand operand) { return operand == Operand::Float32 || operand == Operand::Float64; }
inline bool is_float16(Operand operand) { return operand == Operand::Float16Widened; }
inline bool is_int8(Operand operand) { return operand == Operand::Int8Quads || operand == Operand::Int8Widened; }

// Storage of the left operand and of the packed one.
inline ScalarType storage_type(Operand operand) {
  if (operand == Operand::Int8Quads) return kByte;  // q + 128, which is what the products take
  if (operand == Operand::Int8Widened) return kShort;
  return operand == Operand::Float64 ? kDouble : operand == Operand::BFloat16Pairs ? kBFloat16 : kFloat;
}
inline ScalarType packed_type(Operand operand) {
  if (is_int8(operand)) return kChar;
  return is_exact(operand) ? storage_type(operand) : is_float16(operand) ? kHalf : kBFloat16;
}
inline int64_t element_size(Operand operand) { return size_of(storage_type(operand)); }
inline int64_t packed_size(Operand operand) { return size_of(packed_type(operand)); }
// Products take the terms in units of one, two or four. The terms past K are zero.
inline int64_t padded(int64_t k, Operand operand) {
  const int64_t unit = operand == Operand::Int8Quads ? 4 : operand == Operand::BFloat16Pairs || operand == Operand::Int8Widened ? 2 : 1;
  return (k + unit - 1) / unit * unit;
}
// Elements of a row of the left operand: behind the terms of int8 stands their scale, a float.
inline int64_t row_width(int64_t k, Operand operand) {
  return padded(k, operand) + (is_int8(operand) ? static_cast<int64_t>(sizeof(float)) / element_size(operand) : 0);
}
// True if a row can only be converted as a whole.
inline bool needs_whole_rows(Operand operand) { return is_int8(operand); }

// Rounds n numbers to the left operand; of int8, a whole row, its padding and its scale. The target may be unaligned; it is not padded
// otherwise.
void to_operands(const float* source, void* target, int64_t n, Operand operand);
void to_operands(const double* source, void* target, int64_t n, Operand operand);

// Rounds n numbers to the packed operand.
void to_packed(const float* source, void* target, int64_t n, Operand operand);
void to_packed(const double* source, void* target, int64_t n, Operand operand);

// to_operands for `rows` rows of n numbers, `ld_source` and `ld_target` elements apart.
template <typename T>
void to_operand_tile(const T* source, int64_t ld_source, void* target, int64_t ld_target, int64_t rows, int64_t n, Operand operand);

// x [M, K], any strides -> contiguous operands [M, row_width(K)], the padding zero.
Tensor to_operand_rows(const Tensor& x, Operand operand);

// A contiguous copy of x [M, K] whose columns lie contiguous.
Tensor transposed_copy(const Tensor& x);

// x rounded as products see it, held in its own dtype.
inline Tensor rounded_values(const Tensor& x, Operand operand) { return is_exact(operand) ? x : x.to(packed_type(operand)).to(x.scalar_type()); }

// n numbers as integers within 127, and the scale that they are times: the largest of the numbers / 127; 0 where that is below 2^-100, NaN
// where one is not finite.
template <typename Integer>
float quantize(const float* source, Integer* target, int64_t n);

}  // namespace elmo_fast
