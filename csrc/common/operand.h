// How the operands of a matrix product are held: the numbers that `precision` asks for, in the type that this CPU multiplies.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace elmo_fast {

enum class Operand {
  Float64,           // as they are
  Float32,           // as they are
  BFloat16,          // multiplied as bfloat16 pairs (AMX), summed in float32
  BFloat16AsFloat,   // rounded to bfloat16, held and multiplied as float32: the same numbers where there is no AMX
  Float16AsFloat,    // rounded to float16, held and multiplied as float32
};

// What `precision` ("float32" | "bfloat16" | "float16") means for tensors of this dtype on this CPU.
Operand resolve_operand(const std::string& precision, at::ScalarType dtype);

inline at::ScalarType storage_type(Operand operand) {
  return operand == Operand::Float64 ? at::kDouble : operand == Operand::BFloat16 ? at::kBFloat16 : at::kFloat;
}
inline int64_t element_size(Operand operand) {
  return operand == Operand::Float64 ? 8 : operand == Operand::BFloat16 ? 2 : 4;
}
// bfloat16 is multiplied in pairs, so rows are padded with a zero to an even number of elements.
inline int64_t padded(int64_t k, Operand operand) { return operand == Operand::BFloat16 ? (k + 1) / 2 * 2 : k; }

// Rounds n numbers to operands. The target may be unaligned; it is not padded.
void to_operands(const float* source, void* target, int64_t n, Operand operand);
void to_operands(const double* source, void* target, int64_t n, Operand operand);

// The same for `rows` rows of n numbers, `ld_source` and `ld_target` elements apart.
template <typename T>
void to_operand_tile(const T* source, int64_t ld_source, void* target, int64_t ld_target, int64_t rows, int64_t n, Operand operand);

// x [M, K], any strides -> contiguous operands [M, padded(K)], the padding zero.
at::Tensor to_operand_rows(const at::Tensor& x, Operand operand);

// True when bfloat16 (or float32) products run on the CPU's own block kernels; the switch makes the fall-back testable.
bool has_bfloat16_kernel();
bool has_float32_kernel();
bool uses_panel_kernel();  // float32 products of few rows on the kernel of common/panel.h
void disable_block_kernels(bool disable);

}  // namespace elmo_fast
