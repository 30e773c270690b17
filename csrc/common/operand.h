// How the operands of a matrix product are held: the numbers that `precision` asks for, in the type that this CPU multiplies.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace elmo_fast {

enum class Operand {
  Float64,          // as they are
  Float32,          // as they are
  BFloat16Pairs,    // both as bfloat16, multiplied in pairs (AVX512_BF16, AMX), summed in float32
  BFloat16Widened,  // rounded to bfloat16; the packed one held in 16 bits and widened in registers, the other held as float32
  Float16Widened,   // likewise, rounded to float16
};

// What `precision` ("float32" | "bfloat16" | "float16") means for tensors of this dtype on this CPU.
Operand resolve_operand(const std::string& precision, at::ScalarType dtype);

inline bool is_exact(Operand operand) { return operand == Operand::Float32 || operand == Operand::Float64; }
inline bool is_float16(Operand operand) { return operand == Operand::Float16Widened; }

// How the left operand is held, and the packed one.
inline at::ScalarType storage_type(Operand operand) {
  return operand == Operand::Float64 ? at::kDouble : operand == Operand::BFloat16Pairs ? at::kBFloat16 : at::kFloat;
}
inline at::ScalarType packed_type(Operand operand) {
  return is_exact(operand) ? storage_type(operand) : is_float16(operand) ? at::kHalf : at::kBFloat16;
}
inline int64_t element_size(Operand operand) { return static_cast<int64_t>(c10::elementSize(storage_type(operand))); }
inline int64_t packed_size(Operand operand) { return static_cast<int64_t>(c10::elementSize(packed_type(operand))); }
// Pairs: rows are padded with a zero to an even number of elements.
inline int64_t padded(int64_t k, Operand operand) { return operand == Operand::BFloat16Pairs ? (k + 1) / 2 * 2 : k; }

// Rounds n numbers to the left operand. The target may be unaligned; it is not padded.
void to_operands(const float* source, void* target, int64_t n, Operand operand);
void to_operands(const double* source, void* target, int64_t n, Operand operand);

// Rounds n numbers to the packed operand.
void to_packed(const float* source, void* target, int64_t n, Operand operand);
void to_packed(const double* source, void* target, int64_t n, Operand operand);

// to_operands for `rows` rows of n numbers, `ld_source` and `ld_target` elements apart.
template <typename T>
void to_operand_tile(const T* source, int64_t ld_source, void* target, int64_t ld_target, int64_t rows, int64_t n, Operand operand);

// x [M, K], any strides -> contiguous operands [M, padded(K)], the padding zero.
at::Tensor to_operand_rows(const at::Tensor& x, Operand operand);

}  // namespace elmo_fast
