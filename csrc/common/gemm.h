// Products with a packed right operand: y[M, N] = x[M, K] · W[K, N], W rearranged once into blocks of 64 columns.
// A row of y does not depend on how many other rows there are: every element sums its K terms in one fixed order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/block_kernels.h"
#include "common/operand.h"
#include "common/tiles.h"

namespace elmo_fast {

struct Packed {
  Tensor data;  // [blocks][4][units][16][terms of a unit], as block_kernels.h reads it
  Tensor scale, offset;  // of int8: float and int32 [blocks * 64]; offset: what the 128 in each q + 128 adds to a column's sum, else 0
  int64_t k = 0, n = 0;
  Operand operand = Operand::Float32;
  int64_t blocks() const { return (n + kBlock - 1) / kBlock; }
  std::vector<int64_t> shape() const {  // of data
    const int64_t unit = padded(1, operand);
    return {blocks(), kBlock / kGroup, padded(k, operand) / unit, kGroup, unit};
  }
};

// How an op reads a weight: as W[K, N], any strides. `columns` (if not empty) lists, for each packed column, the column of W that it holds, -1
// for zeros; `rows` likewise for the K terms.
struct Layout {
  Layout(Tensor matrix, std::vector<int64_t> columns = {}, std::vector<int64_t> rows = {})
      : matrix(std::move(matrix)), columns(std::move(columns)), rows(std::move(rows)) {}
  Tensor matrix;
  std::vector<int64_t> columns, rows;
};

// The layouts of pack_weight but "plain", W^T, each next to the kernel that reads it.
Layout filters_layout(const Tensor& weight, Operand operand);
Layout highway_layout(const Tensor& weight);
Layout gates_layout(const Tensor& weight);

Packed pack(const Layout& layout, Operand operand);

// What the op pack_weight returned for the weights of an op, one behind the other; none: the op packs.
using Copies = std::optional<std::vector<Tensor>>;

// The copy of the op's weight number `index`, or a new one. Raises if it cannot be the copy of a weight of this size and operand.
Packed packed_of(const Arguments& check, const Layout& layout, Operand operand, const Copies& copies, size_t index);

// target[j][i] = source[i][j] for `rows` rows of `count` units, at most 64; rows start `ld` units apart.
template <typename Unit>
void transpose(const Unit* source, int64_t ld_source, int64_t rows, int64_t count, Unit* target, int64_t ld_target);

// The product below for blocks first..last-1, whose results start `block_stride` apart; x is read once, not once per block.
template <typename T>
void multiply_blocks(
    const Packed& w, int64_t first, int64_t last, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, int64_t block_stride,
    bool accumulate);
// c[M, 64] (+)= x[M, K] · block `block`; x as operands with rows `ldx` elements apart (they may overlap, or repeat). Columns past
// N are zero. T is double for Float64, else float. Call release_kernels() on the same thread when done with a run of calls.
template <typename T>
void multiply_block(const Packed& w, int64_t block, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate) {
  multiply_blocks<T>(w, block, block + 1, x, ldx, m, c, ldc, 0, accumulate);
}
void release_kernels(const Packed& w);

// True if a product of m rows with one block can run in steps (common/tiles.h); and that product: c[M, 64] = x[M, K] · block `block`.
inline bool goes_in_steps(const Packed& w, int64_t m) {
  return w.operand == Operand::BFloat16Pairs && isa().tiles && m <= 2 * kTileRows && 2 * w.k % kTileBytes == 0 && w.k > 0;
}
inline TileProduct tile_product(const Packed& w, int64_t block, const void* x, int64_t ldx, int64_t m, float* c) {
  const auto* data = static_cast<const char*>(w.data.const_data_ptr());
  return {m, 2 * w.k, static_cast<const char*>(x), 2 * ldx, data + 2 * block * w.k * kBlock, 2 * w.k * kGroup, c};
}

// c[M, N] (+)= x[M, K] · W (+ bias[N]), in parallel over blocks, whose columns start `block_stride` apart.
template <typename T>
void multiply(
    const Packed& w, const void* x, int64_t ldx, int64_t m, T* c, int64_t ldc, bool accumulate = false, const T* bias = nullptr,
    int64_t block_stride = kBlock);

// The same for tensors: `operands` [M, row_width(K)], or x [M, K] of any strides; c is contiguous.
void multiply_operands(const Packed& w, const Tensor& operands, const Tensor& c, bool accumulate = false, const Tensor& bias = {});
void multiply_rows(const Packed& w, const Tensor& x, const Tensor& c, bool accumulate = false, const Tensor& bias = {});

// a[M, K] · b[K, N] for tensors of any strides, operands rounded, result contiguous in the tensors' dtype.
Tensor matmul(const Tensor& a, const Tensor& b, Operand operand);

}  // namespace elmo_fast
