#include "common/operand.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

ELMO_MULTIVERSION void round_bfloat16_tile(
    const float* source, int64_t ld_source, uint16_t* target, int64_t ld_target, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < n; ++i) target[row * ld_target + i] = bfloat16_bits(source[row * ld_source + i]);
}
ELMO_MULTIVERSION void round_bfloat16_as_float(const float* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = bfloat16_value(source[i]);
}
ELMO_MULTIVERSION void round_float16(const float* source, uint16_t* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = float16_bits(source[i]);
}
// The bits of the largest magnitude; NaN is above infinity.
ELMO_MULTIVERSION uint32_t largest_magnitude(const float* source, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(source[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}
template <typename Integer>
ELMO_MULTIVERSION void round_int8(const float* source, Integer* target, int64_t n, float inverse) {
  for (int64_t i = 0; i < n; ++i) target[i] = static_cast<Integer>(static_cast<int32_t>(std::rint(source[i] * inverse)));
}
ELMO_MULTIVERSION void add_128(uint8_t* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] ^= 0x80u;  // of a byte, the same
}
ELMO_MULTIVERSION void round_float16_as_float(const float* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = float16_value(source[i]);
}

}  // namespace

Operand resolve_operand(const std::string& precision, ScalarType dtype, bool allow_int8) {
  if (allow_int8 && precision == "int8") {
    ELMO_CHECK_VALUE(dtype == kFloat, "precision=\"int8\" needs float32 tensors; got ", dtype);
    return isa().int8_quads != nullptr ? Operand::Int8Quads : Operand::Int8Widened;
  }
  ELMO_CHECK_VALUE(
      precision == "float32" || precision == "bfloat16" || precision == "float16",
      "precision must be one of float32, bfloat16, float16; got ", precision);
  if (dtype == kDouble) {
    ELMO_CHECK_VALUE(precision == "float32", "precision=\"", precision, "\" needs float32 tensors; got float64");
    return Operand::Float64;
  }
  if (precision == "bfloat16") return isa().bfloat16_pairs != nullptr ? Operand::BFloat16Pairs : Operand::BFloat16Widened;
  return precision == "float16" ? Operand::Float16Widened : Operand::Float32;
}

template <typename Integer>
float quantize(const float* source, Integer* target, int64_t n) {
  const uint32_t largest = largest_magnitude(source, n), infinity = 0x7f800000u;
  const float bound = std::bit_cast<float>(largest);
  if (largest >= infinity || bound < 0x1p-100f) {
    std::fill_n(target, n, 0);
    return largest >= infinity ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  round_int8(source, target, n, 127.0f / bound);
  return bound / 127.0f;
}
template float quantize<int8_t>(const float*, int8_t*, int64_t);

namespace {

// Integers, padding, scale; of Int8Quads, q + 128.
template <typename Integer>
void quantize_row(const float* source, Integer* target, int64_t n, Operand operand) {
  const float scale = quantize(source, target, n);
  const int64_t width = padded(n, operand);
  std::fill_n(target + n, width - n, 0);
  if (operand == Operand::Int8Quads) add_128(reinterpret_cast<uint8_t*>(target), width);
  std::memcpy(target + width, &scale, sizeof(scale));
}

}  // namespace

void to_operands(const float* source, void* target, int64_t n, Operand operand) {
  switch (operand) {
    case Operand::BFloat16Pairs:
      return round_bfloat16_tile(source, n, static_cast<uint16_t*>(target), n, 1, n);
    case Operand::BFloat16Widened:
      return round_bfloat16_as_float(source, static_cast<float*>(target), n);
    case Operand::Float16Widened:
      return round_float16_as_float(source, static_cast<float*>(target), n);
    case Operand::Int8Quads:
      return quantize_row(source, static_cast<int8_t*>(target), n, operand);
    case Operand::Int8Widened:
      return quantize_row(source, static_cast<int16_t*>(target), n, operand);
    default:
      std::copy_n(source, n, static_cast<float*>(target));
  }
}

void to_packed(const float* source, void* target, int64_t n, Operand operand) {
  if (is_exact(operand)) return (void)std::copy_n(source, n, static_cast<float*>(target));
  auto* const bits = static_cast<uint16_t*>(target);
  is_float16(operand) ? round_float16(source, bits, n) : round_bfloat16_tile(source, n, bits, n, 1, n);
}

void to_operands(const double* source, void* target, int64_t n, Operand) { std::copy_n(source, n, static_cast<double*>(target)); }
void to_packed(const double* source, void* target, int64_t n, Operand) { std::copy_n(source, n, static_cast<double*>(target)); }

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

Tensor to_operand_rows(const Tensor& x, Operand operand) {
  const auto rows = x.stride(0) == 1 && x.stride(1) != 1 ? transposed_copy(x) : x.contiguous();
  const int64_t m = rows.size(0), k = rows.size(1), width = row_width(k, operand);
  if (is_exact(operand)) return rows;
  auto result = empty({m, width}, storage_type(operand));
  const float* source = rows.const_data_ptr<float>();
  auto* target = static_cast<char*>(result.mutable_data_ptr());
  const int64_t size = element_size(operand);
  parallel_for(m, grain_of(8 * k), [&](int64_t begin, int64_t end) {
    to_operand_tile(source + begin * k, k, target + begin * width * size, width, end - begin, k, operand);
    if (width > k && !needs_whole_rows(operand))
      for (int64_t i = begin; i < end; ++i) std::fill_n(target + (i * width + k) * size, (width - k) * size, 0);
  });
  return result;
}

}  // namespace elmo_fast
