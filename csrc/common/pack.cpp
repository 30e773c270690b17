// Rearranging the right operand of a product into blocks of 64 columns. In training this happens at every step, so it reads and writes
// whole cache lines and leaves the elements to vector loops.
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>

#include "common/buffer.h"
#include "common/gemm.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

constexpr int64_t kGroup = 16;  // columns that are interleaved at a time

// target[i * stride + j] = lines[j][i] for 16 lines, in stretches that stay in the first-level cache.
template <typename Unit>
ELMO_INLINE void interleave(const Unit* const* lines, int64_t count, Unit* target, int64_t stride) {
  constexpr int64_t stretch = 64;
  for (int64_t first = 0; first < count; first += stretch)
    for (int64_t i = first; i < std::min(first + stretch, count); ++i)
      for (int64_t j = 0; j < kGroup; ++j) target[i * stride + j] = lines[j][i];
}
ELMO_MULTIVERSION void interleave_words(const uint32_t* const* lines, int64_t count, uint32_t* target, int64_t stride) {
  interleave(lines, count, target, stride);
}
void interleave_words(const double* const* lines, int64_t count, double* target, int64_t stride) {
  interleave(lines, count, target, stride);
}

// target[group][j] = (even, odd) of column 16 group + j, groups `stride` pairs apart.
ELMO_MULTIVERSION void zip(const uint16_t* even, const uint16_t* odd, uint32_t* target, int64_t stride) {
  for (int64_t group = 0; group < kBlock / kGroup; ++group)
    for (int64_t j = 0; j < kGroup; ++j)
      target[group * stride + j] = even[group * kGroup + j] | static_cast<uint32_t>(odd[group * kGroup + j]) << 16;
}

int64_t picked(const std::vector<int64_t>& order, int64_t i) { return order.empty() ? i : order[i]; }

// Writes column blocks of W, reading along whichever of its rows and columns lies contiguous in memory. T: what the operand is held in.
template <typename Source, typename T>
class BlockPacker {
 public:
  BlockPacker(const at::Tensor& weight, const Packed& w, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows)
      : weight_(weight.const_data_ptr<Source>()), row_stride_(weight.stride(0)), column_stride_(weight.stride(1)), w_(w),
        columns_(columns), rows_(rows), depth_(padded(w.k, w.operand)) {}

  // [64/panel][K][panel] of T, or groups of 16 columns as pairs, [4][K/2][16][2].
  void pack(int64_t block, T* target) const { column_stride_ == 1 ? pack_by_rows(block, target) : pack_by_columns(block, target); }

 private:
  static constexpr bool kPairs = std::is_same_v<T, uint16_t>;
  using Unit = std::conditional_t<std::is_same_v<T, double>, double, uint32_t>;  // one float32, or a pair of bfloat16

  const Source* weight_;
  const int64_t row_stride_, column_stride_;
  const Packed& w_;
  const std::vector<int64_t>&columns_, &rows_;
  const int64_t depth_;

  int64_t column_of(int64_t j) const { return j < w_.n ? picked(columns_, j) : -1; }
  int64_t row_of(int64_t i) const { return i < w_.k ? picked(rows_, i) : -1; }
  Source at(int64_t row, int64_t column) const {
    return row < 0 || column < 0 ? Source(0) : weight_[row * row_stride_ + column * column_stride_];
  }

  // 64 columns of packed row i, as operands.
  void read_row(int64_t block, int64_t i, T* target) const {
    const int64_t row = row_of(i), first = block * kBlock;
    if (columns_.empty() && row >= 0 && first + kBlock <= w_.n)
      return to_operands(weight_ + row * row_stride_ + first, target, kBlock, w_.operand);
    Source line[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) line[j] = at(row, column_of(first + j));
    to_operands(line, target, kBlock, w_.operand);
  }

  void pack_by_rows(int64_t block, T* target) const {
    T line[2][kBlock];
    for (int64_t i = 0; i < depth_; i += kPairs ? 2 : 1) {
      read_row(block, i, line[0]);
      if constexpr (kPairs) {
        read_row(block, i + 1, line[1]);
        zip(line[0], line[1], reinterpret_cast<uint32_t*>(target) + i / 2 * kGroup, depth_ / 2 * kGroup);
      } else {
        for (int64_t column = 0; column < kBlock; column += w_.panel)
          std::copy_n(line[0] + column, w_.panel, target + column * depth_ + i * w_.panel);
      }
    }
  }

  // All terms of packed column j, as operands.
  void read_column(int64_t j, T* target) const {
    const int64_t column = column_of(j);
    if (column < 0) return (void)std::fill_n(target, depth_, T(0));
    if (rows_.empty() && row_stride_ == 1 && depth_ == w_.k)
      return to_operands(weight_ + column * column_stride_, target, depth_, w_.operand);
    std::vector<Source> line(depth_);
    for (int64_t i = 0; i < depth_; ++i) line[i] = at(row_of(i), column);
    to_operands(line.data(), target, depth_, w_.operand);
  }

  void pack_by_columns(int64_t block, T* target) const {
    const int64_t count = kPairs ? depth_ / 2 : depth_, stride = kPairs ? kGroup : w_.panel;
    std::vector<Unit> held(kGroup * count);
    const Unit* lines[kGroup];
    for (int64_t j = 0; j < kGroup; ++j) lines[j] = held.data() + j * count;
    for (int64_t first = 0; first < kBlock; first += kGroup) {
      for (int64_t j = 0; j < kGroup; ++j) read_column(block * kBlock + first + j, reinterpret_cast<T*>(held.data() + j * count));
      const int64_t place = kPairs ? first * count : first / w_.panel * w_.panel * count + first % w_.panel;
      interleave_words(lines, count, reinterpret_cast<Unit*>(target) + place, stride);
    }
  }
};

template <typename Source, typename T>
void pack_all(const at::Tensor& weight, Packed& w, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows) {
  const BlockPacker<Source, T> packer(weight, w, columns, rows);
  auto* target = static_cast<T*>(w.data.mutable_data_ptr());
  const int64_t size = padded(w.k, w.operand) * kBlock;
  at::parallel_for(0, w.blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) packer.pack(block, target + block * size);
  });
}

}  // namespace

Packed pack(
    const at::Tensor& weight, Operand operand, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows, int64_t panel) {
  Packed w;
  w.panel = panel;
  w.operand = operand;
  w.k = rows.empty() ? weight.size(0) : static_cast<int64_t>(rows.size());
  w.n = columns.empty() ? weight.size(1) : static_cast<int64_t>(columns.size());
  w.data = empty_buffer({w.blocks() * kBlock * padded(w.k, operand)}, weight.options().dtype(storage_type(operand)));
  if (operand == Operand::Float64)
    pack_all<double, double>(weight, w, columns, rows);
  else if (operand == Operand::BFloat16)
    pack_all<float, uint16_t>(weight, w, columns, rows);
  else
    pack_all<float, float>(weight, w, columns, rows);
  return w;
}

}  // namespace elmo_fast
