#include "common/operand.h"

#include <algorithm>
#include <type_traits>

#include "common/isa.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

ELMO_MULTIVERSION void round_bfloat16(const float* source, uint16_t* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = bfloat16_bits(source[i]);
}
ELMO_MULTIVERSION void round_bfloat16_as_float(const float* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = bfloat16_value(source[i]);
}
ELMO_MULTIVERSION void round_float16(const float* source, uint16_t* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = float16_bits(source[i]);
}
ELMO_MULTIVERSION void round_float16_as_float(const float* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = float16_value(source[i]);
}

}  // namespace

Operand resolve_operand(const std::string& precision, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      precision == "float32" || precision == "bfloat16" || precision == "float16",
      "precision must be one of float32, bfloat16, float16; got ", precision);
  if (dtype == at::kDouble) {
    TORCH_CHECK_VALUE(precision == "float32", "precision=\"", precision, "\" needs float32 tensors; got float64");
    return Operand::Float64;
  }
  if (precision == "bfloat16") return isa() >= Isa::Avx512Bf16 ? Operand::BFloat16Pairs : Operand::BFloat16Widened;
  return precision == "float16" ? Operand::Float16Widened : Operand::Float32;
}

void to_operands(const float* source, void* target, int64_t n, Operand operand) {
  switch (operand) {
    case Operand::BFloat16Pairs:
      return round_bfloat16(source, static_cast<uint16_t*>(target), n);
    case Operand::BFloat16Widened:
      return round_bfloat16_as_float(source, static_cast<float*>(target), n);
    case Operand::Float16Widened:
      return round_float16_as_float(source, static_cast<float*>(target), n);
    default:
      std::copy_n(source, n, static_cast<float*>(target));
  }
}

void to_packed(const float* source, void* target, int64_t n, Operand operand) {
  if (is_exact(operand)) return (void)std::copy_n(source, n, static_cast<float*>(target));
  (is_float16(operand) ? round_float16 : round_bfloat16)(source, static_cast<uint16_t*>(target), n);
}

void to_operands(const double* source, void* target, int64_t n, Operand) { std::copy_n(source, n, static_cast<double*>(target)); }
void to_packed(const double* source, void* target, int64_t n, Operand) { std::copy_n(source, n, static_cast<double*>(target)); }

namespace {
ELMO_MULTIVERSION void round_bfloat16_tile(
    const float* source, int64_t ld_source, uint16_t* target, int64_t ld_target, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < n; ++i) target[row * ld_target + i] = bfloat16_bits(source[row * ld_source + i]);
}
}  // namespace

template <typename T>
void to_operand_tile(const T* source, int64_t ld_source, void* target, int64_t ld_target, int64_t rows, int64_t n, Operand operand) {
  if constexpr (std::is_same_v<T, float>) {
    if (operand == Operand::BFloat16Pairs)
      return round_bfloat16_tile(source, ld_source, static_cast<uint16_t*>(target), ld_target, rows, n);
  }
  for (int64_t row = 0; row < rows; ++row)
    to_operands(source + row * ld_source, static_cast<char*>(target) + row * ld_target * element_size(operand), n, operand);
}
template void to_operand_tile<float>(const float*, int64_t, void*, int64_t, int64_t, int64_t, Operand);
template void to_operand_tile<double>(const double*, int64_t, void*, int64_t, int64_t, int64_t, Operand);

at::Tensor to_operand_rows(const at::Tensor& x, Operand operand) {
  const auto rows = x.contiguous();
  const int64_t m = rows.size(0), k = rows.size(1), width = padded(k, operand);
  if (is_exact(operand)) return rows;
  auto result = at::empty({m, width}, rows.options().dtype(storage_type(operand)));
  const float* source = rows.const_data_ptr<float>();
  auto* target = static_cast<char*>(result.mutable_data_ptr());
  const int64_t size = element_size(operand);
  to_operand_tile(source, k, target, width, m, k, operand);
  if (width > k)
    for (int64_t i = 0; i < m; ++i) std::fill_n(target + (i * width + k) * size, (width - k) * size, 0);
  return result;
}

}  // namespace elmo_fast
