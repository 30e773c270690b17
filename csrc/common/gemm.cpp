#include "common/gemm.h"

#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"
#include "common/tiles.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace elmo_fast {
namespace {

constexpr int64_t kDepth = 512;  // terms summed in one call, which bounds what is read of x; of pairs twice as many, of tiles four times
constexpr int64_t kTile = 128;   // rows of x multiplied in one call
constexpr int64_t kStrip = 512;  // rows of x that are multiplied with every block before the next rows are touched

bool uses_tiles(Operand operand) { return (operand == Operand::BFloat16Pairs || operand == Operand::Int8Quads) && isa().tiles; }

// Terms of one call. Tiles keep their sums in registers; the sums of int8 are exact, and become float32 when all are there.
int64_t depth_of(Operand operand) {
  if (is_int8(operand)) return std::numeric_limits<int32_t>::max();
  return uses_tiles(operand) ? 4 * kDepth : operand == Operand::BFloat16Pairs ? 2 * kDepth : kDepth;
}

// Dequantizes int32 sums c, which contain the offset of w. scales: of x's rows, `stride` bytes apart.
ELMO_MULTIVERSION void scale_sums(float* c, int64_t ldc, int64_t m, const char* scales, int64_t stride, const float* scale, const int32_t* offset) {
  for (int64_t i = 0; i < m; ++i) {
    float of_row;
    std::memcpy(&of_row, scales + i * stride, sizeof(of_row));
    for (int64_t j = 0; j < kBlock; ++j) {
      const int32_t sum = std::bit_cast<int32_t>(c[i * ldc + j]) - offset[j];
      c[i * ldc + j] = static_cast<float>(sum) * (of_row * scale[j]);
    }
  }
}

BlockKernel kernel_of(Operand operand) {
  const InstructionSet& set = isa();
  switch (operand) {
    case Operand::Float64:
      return set.kernels.float64;
    case Operand::BFloat16Pairs:
      return set.bfloat16_pairs;
    case Operand::BFloat16Widened:
      return set.kernels.bfloat16_widened;
    case Operand::Float16Widened:
      return set.kernels.float16_widened;
    case Operand::Int8Quads:
      return set.int8_quads;
    case Operand::Int8Widened:
      return set.kernels.int8_widened;
    default:
      return set.kernels.float32;
  }
}

}  // namespace

template <typename T>
void multiply_blocks(
    const Packed& w, int64_t first, int64_t last, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, int64_t block_stride,
    bool accumulate) {
  const int64_t depth = padded(w.k, w.operand), most = depth_of(w.operand), size = packed_size(w.operand);
  const auto* rows = static_cast<const char*>(x);
  const auto* data = static_cast<const char*>(w.data.const_data_ptr());
  const BlockKernel kernel = kernel_of(w.operand);
  if (depth == 0 && !accumulate)  // no terms, which the kernels do not handle
    for (int64_t block = 0; block < last - first; ++block)
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + block * block_stride + i * ldc, kBlock, T(0));
  ELMO_CHECK(!is_int8(w.operand) || !accumulate, "elmo_fast: sums of int8 are not added to others");
  for (int64_t k = 0; k < depth; k += most)
    for (int64_t block = first; block < last; ++block)
      kernel(
          {m, std::min(most, depth - k), rows + k * element_size(w.operand), ldx, data + (block * depth * kBlock + k * kGroup) * size,
           depth * kGroup, block + 1 < w.blocks(), c + (block - first) * block_stride, ldc, accumulate || k > 0});
  if constexpr (std::is_same_v<T, float>) {
    if (!is_int8(w.operand) || depth == 0) return;
    const int64_t bytes = element_size(w.operand);
    for (int64_t block = first; block < last; ++block)
      scale_sums(
          c + (block - first) * block_stride, ldc, m, rows + depth * bytes, ldx * bytes, w.scale.const_data_ptr<float>() + block * kBlock,
          w.offset.const_data_ptr<int32_t>() + block * kBlock);
  }
}

void release_kernels(const Packed& w) {
  if (uses_tiles(w.operand)) release_tiles();
}

namespace {

// Rows m0..m1 of a product with one block of columns, through a tile where the block is not full.
template <typename T>
void multiply_tile(
    const Packed& w, int64_t block, const char* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate, const T* bias) {
  const int64_t first = block * kBlock, width = std::min(kBlock, w.n - first);
  T tile[kTile * kBlock];
  T* target = width == kBlock ? c : tile;
  const int64_t stride = width == kBlock ? ldc : kBlock;
  multiply_block<T>(w, block, x, ldx, m, target, stride, accumulate && width == kBlock);
  if (width == kBlock && bias == nullptr) return;
  for (int64_t i = 0; i < m; ++i) {
    T* row = c + i * ldc;
    const T* product = target + i * stride;
    for (int64_t j = 0; j < width; ++j) {
      const T before = accumulate && width != kBlock ? row[j] : T(0);
      row[j] = before + product[j] + (bias == nullptr ? T(0) : bias[first + j]);
    }
  }
}

}  // namespace

template <typename T>
void multiply(
    const Packed& w, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate, const T* bias, int64_t block_stride) {
  const int64_t row_bytes = ldx * element_size(w.operand);
  const int64_t strips = (m + kStrip - 1) / kStrip;
  parallel_for(strips * w.blocks(), grain_of(std::min(m, kStrip) * w.k * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t strip = task / w.blocks() * kStrip, block = task % w.blocks(), end_row = std::min(m, strip + kStrip);
      for (int64_t i = strip; i < end_row; i += kTile)
        multiply_tile<T>(
            w, block, static_cast<const char*>(x) + i * row_bytes, ldx, std::min(kTile, end_row - i), c + block * block_stride + i * ldc,
            ldc, accumulate, bias);
    }
    release_kernels(w);
  });
}

void multiply_operands(const Packed& w, const Tensor& operands, const Tensor& c, bool accumulate, const Tensor& bias) {
  by_type(c.scalar_type(), [&]<typename T>() {
    multiply<T>(
        w, operands.const_data_ptr(), operands.size(1), operands.size(0), c.mutable_data_ptr<T>(), w.n, accumulate,
        bias.defined() ? bias.const_data_ptr<T>() : nullptr);
  });
}

void multiply_rows(const Packed& w, const Tensor& x, const Tensor& c, bool accumulate, const Tensor& bias) {
  const int64_t m = x.size(0), step = x.stride(0) == 1 ? kTile : std::max<int64_t>(m, 1);  // what is transposed stays in a cache
  parallel_for((m + step - 1) / step, grain_of(step * w.k * w.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * step; i < std::min(m, end * step); i += step) {
      const int64_t rows = std::min(step, m - i);
      multiply_operands(w, to_operand_rows(x.narrow(0, i, rows), w.operand), c.narrow(0, i, rows), accumulate, bias);
    }
  });
}

Tensor matmul(const Tensor& a, const Tensor& b, Operand operand) {
  const Arguments check("matmul");
  check.tensor("a", a, kFloating, {kAny, kAny});
  check.tensor("b", b, a.scalar_type(), {a.size(1), kAny});
  const auto w = pack(b, operand);
  auto c = empty_buffer({a.size(0), b.size(1)}, a.scalar_type());
  multiply_rows(w, a, c);
  return c;
}

namespace {
Tensor matmul_of(const Tensor& a, const Tensor& b, const Name& precision) { return matmul(a, b, resolve_operand(precision, a.scalar_type(), true)); }
}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("matmul", TORCH_BOX(&matmul_of)); }

template void multiply_blocks<float>(
    const Packed&, int64_t, int64_t, const void*, int64_t, int64_t, float*, int64_t, int64_t, bool);
template void multiply_blocks<double>(
    const Packed&, int64_t, int64_t, const void*, int64_t, int64_t, double*, int64_t, int64_t, bool);
template void multiply<float>(const Packed&, const void*, int64_t, int64_t, float*, int64_t, bool, const float*, int64_t);
template void multiply<double>(const Packed&, const void*, int64_t, int64_t, double*, int64_t, bool, const double*, int64_t);
}  // namespace elmo_fast
