#include "common/gemm.h"

#include "common/buffer.h"
#include "common/checks.h"
#include "common/panel.h"
#include "common/tiles.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <type_traits>

namespace elmo_fast {
namespace cpublas = at::native::cpublas;
namespace {

constexpr int64_t kDepth = 512;  // terms summed in one call: 512 x 32 floats of W stay in the first-level cache's neighbour
constexpr int64_t kTile = 128;   // rows of x multiplied in one call
constexpr int64_t kStrip = 512;  // rows of x that are multiplied with every block before the next rows are touched

// Row-major c[M, width] (+)= x[M, K] · panel[K, width] through torch's own product (its BLAS wrapper is not exported).
template <typename T>
void blas_panel(int64_t m, int64_t k, const T* x, int64_t ldx, const T* panel, int64_t width, T* c, int64_t ldc, bool accumulate) {
  const auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value);
  const auto left = at::from_blob(const_cast<T*>(x), {m, k}, {ldx, 1}, options);
  const auto right = at::from_blob(const_cast<T*>(panel), {k, width}, options);
  auto result = at::from_blob(c, {m, width}, {ldc, 1}, options);
  if (accumulate)
    result.addmm_(left, right);
  else
    result.copy_(at::mm(left, right));
}

}  // namespace

// Terms k..k+terms of the product with one block.
template <typename T>
void multiply_terms(
    const Packed& w, int64_t block, int64_t k, int64_t terms, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate) {
  const int64_t depth = padded(w.k, w.operand);
  if (w.operand == Operand::BFloat16) {
    if constexpr (std::is_same_v<T, float>) {
      const auto* data = static_cast<const uint16_t*>(w.data.const_data_ptr()) + block * depth * kBlock + k * 16;
      multiply_tiles(m, terms, static_cast<const uint16_t*>(x) + k, ldx, data, depth * 16, c, ldc, accumulate);
    }
    return;
  }
  const T* rows = static_cast<const T*>(x) + k;
  for (int64_t column = 0; column < kBlock; column += w.panel) {
    const T* tile = w.data.const_data_ptr<T>() + block * depth * kBlock + column * depth + k * w.panel;
    if constexpr (std::is_same_v<T, float>) {
      if (w.panel == kPanel && uses_panel_kernel()) {
        // The next tile in memory: the next terms of this panel, or the next panel. Past the end there is nothing to fetch.
        const T* next = tile + terms * kPanel;
        const bool last = next + terms * kPanel > w.data.const_data_ptr<T>() + w.data.numel();
        multiply_panel(m, terms, rows, ldx, tile, last ? nullptr : next, c + column, ldc, accumulate);
        continue;
      }
      if (has_float32_kernel()) {
        cpublas::brgemm(m, w.panel, terms, ldx, w.panel, ldc, accumulate, rows, tile, c + column, false);
        continue;
      }
    }
    blas_panel<T>(m, terms, rows, ldx, tile, w.panel, c + column, ldc, accumulate);
  }
}

template <typename T>
void multiply_blocks(
    const Packed& w, int64_t first, int64_t last, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, int64_t block_stride,
    bool accumulate) {
  const int64_t depth = padded(w.k, w.operand), most = w.operand == Operand::BFloat16 ? 4 * kDepth : kDepth;
  if (depth == 0 && !accumulate)  // no terms, which the kernels are not made for
    for (int64_t block = 0; block < last - first; ++block)
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + block * block_stride + i * ldc, kBlock, T(0));
  for (int64_t k = 0; k < depth; k += most)
    for (int64_t block = first; block < last; ++block)
      multiply_terms<T>(
          w, block, k, std::min(most, depth - k), x, ldx, m, c + (block - first) * block_stride, ldc, accumulate || k > 0);
}

template <typename T>
void multiply_block(const Packed& w, int64_t block, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate) {
  multiply_blocks<T>(w, block, block + 1, x, ldx, m, c, ldc, 0, accumulate);
}

void release_kernels(const Packed& w) {
  if (w.operand == Operand::BFloat16)
    release_tiles();
  else if (w.operand != Operand::Float64 && has_float32_kernel())
    cpublas::brgemm_release(false);
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
  if (m == 0) return;
  for (int64_t strip = 0; strip < m; strip += kStrip) {
    const int64_t end_row = std::min(m, strip + kStrip);
    at::parallel_for(0, w.blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        for (int64_t i = strip; i < end_row; i += kTile)
          multiply_tile<T>(
              w, block, static_cast<const char*>(x) + i * row_bytes, ldx, std::min(kTile, end_row - i), c + block * block_stride + i * ldc,
              ldc, accumulate, bias);
      release_kernels(w);
    });
  }
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, Operand operand) {
  const Arguments check("matmul");
  check.floating("a", a, {kAny, kAny});
  check.tensor("b", b, a.scalar_type(), {a.size(1), kAny});
  const auto x = to_operand_rows(a, operand);
  const auto w = pack(b, operand, {}, {}, kBlock);
  auto c = empty_buffer({a.size(0), b.size(1)}, a.options());
  if (operand == Operand::Float64)
    multiply<double>(w, x.const_data_ptr(), x.size(1), a.size(0), c.mutable_data_ptr<double>(), w.n);
  else
    multiply<float>(w, x.const_data_ptr(), x.size(1), a.size(0), c.mutable_data_ptr<float>(), w.n);
  return c;
}

template void multiply_blocks<float>(
    const Packed&, int64_t, int64_t, const void*, int64_t, int64_t, float*, int64_t, int64_t, bool);
template void multiply_blocks<double>(
    const Packed&, int64_t, int64_t, const void*, int64_t, int64_t, double*, int64_t, int64_t, bool);
template void multiply_block<float>(const Packed&, int64_t, const void*, int64_t, int64_t, float*, int64_t, bool);
template void multiply_block<double>(const Packed&, int64_t, const void*, int64_t, int64_t, double*, int64_t, bool);
template void multiply<float>(const Packed&, const void*, int64_t, int64_t, float*, int64_t, bool, const float*, int64_t);
template void multiply<double>(const Packed&, const void*, int64_t, int64_t, double*, int64_t, bool, const double*, int64_t);

}  // namespace elmo_fast
