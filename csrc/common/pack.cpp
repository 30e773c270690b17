// Rearranging the right operand of a product into blocks of 64 columns. In training this happens at every step, so it reads and writes
// whole cache lines and leaves the elements to vector loops.

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "common/buffer.h"
#include "common/gemm.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

constexpr int64_t kStrip = 8;   // blocks that are packed together when W is read by rows
constexpr int64_t kPart = 512;  // rows of a task

// target[i][j] = lines[j][i] for 16 lines, in stretches that stay in the first-level cache.
template <typename Unit>
ELMO_INLINE void interleave(const Unit* const* lines, int64_t count, Unit* target) {
  constexpr int64_t stretch = 64;
  for (int64_t first = 0; first < count; first += stretch)
    for (int64_t i = first; i < std::min(first + stretch, count); ++i)
      for (int64_t j = 0; j < kGroup; ++j) target[i * kGroup + j] = lines[j][i];
}
ELMO_MULTIVERSION void interleave_units(const uint16_t* const* lines, int64_t count, uint16_t* target) { interleave(lines, count, target); }
ELMO_MULTIVERSION void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target) { interleave(lines, count, target); }
void interleave_units(const double* const* lines, int64_t count, double* target) { interleave(lines, count, target); }

// target[group][j] = (even, odd) of column 16 group + j, groups `stride` pairs apart.
ELMO_MULTIVERSION void zip(const uint16_t* even, const uint16_t* odd, uint32_t* target, int64_t stride) {
  for (int64_t group = 0; group < kBlock / kGroup; ++group)
    for (int64_t j = 0; j < kGroup; ++j)
      target[group * stride + j] = even[group * kGroup + j] | static_cast<uint32_t>(odd[group * kGroup + j]) << 16;
}

int64_t picked(const std::vector<int64_t>& order, int64_t i) { return order.empty() ? i : order[i]; }

// Writes column blocks of W, reading along whichever of its rows and columns lies contiguous in memory. T: what the operand is held in;
// Unit: what lies side by side of a column, one T or two.
template <typename Source, typename T, typename Unit>
class BlockPacker {
 public:
  BlockPacker(const at::Tensor& weight, const Packed& w, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows)
      : weight_(weight.const_data_ptr<Source>()), row_stride_(weight.stride(0)), column_stride_(weight.stride(1)), w_(w),
        columns_(columns), rows_(rows), depth_(padded(w.k, w.operand)) {}

  void pack_all(T* target) const { column_stride_ == 1 ? pack_by_rows(target) : pack_by_columns(target); }

 private:
  static constexpr int64_t kTerms = sizeof(Unit) / sizeof(T);

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

  // The columns of blocks first..last-1 of packed row i, rounded: where they lie if they need no rounding, else in `line`.
  const T* read_row(int64_t first, int64_t last, int64_t i, T* line) const {
    const int64_t row = row_of(i), begin = first * kBlock, count = (last - first) * kBlock;
    if (columns_.empty() && row >= 0 && begin + count <= w_.n) {
      const Source* source = weight_ + row * row_stride_ + begin;
      if constexpr (std::is_same_v<Source, T>) return source;
      to_packed(source, line, count, w_.operand);
      return line;
    }
    Source found[kStrip * kBlock];
    for (int64_t j = 0; j < count; ++j) found[j] = at(row, column_of(begin + j));
    to_packed(found, line, count, w_.operand);
    return line;
  }

  void write_rows(int64_t first, int64_t last, int64_t i, const T* line, const T* next, T* target) const {
    for (int64_t block = first; block < last; ++block, line += kBlock, next += kBlock) {
      T* to = target + block * depth_ * kBlock + i * kGroup;
      if constexpr (kTerms == 2)
        zip(line, next, reinterpret_cast<uint32_t*>(to), depth_ / 2 * kGroup);
      else
        for (int64_t column = 0; column < kBlock; column += kGroup) std::copy_n(line + column, kGroup, to + column * depth_);
    }
  }

  // A strip of blocks at a time: 2 KiB of every row, not the 256 bytes of one block.
  void pack_by_rows(T* target) const {
    const int64_t strips = (w_.blocks() + kStrip - 1) / kStrip, parts = (depth_ + kPart - 1) / kPart;
    parallel_for(strips * parts, 1, [&](int64_t begin, int64_t end) {
      T line[2][kStrip * kBlock];
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task / parts * kStrip, last = std::min(first + kStrip, w_.blocks());
        const int64_t top = task % parts * kPart, bottom = std::min(top + kPart, depth_);
        for (int64_t i = top; i < bottom; i += kTerms) {
          const T* even = read_row(first, last, i, line[0]);
          write_rows(first, last, i, even, kTerms == 2 ? read_row(first, last, i + 1, line[1]) : even, target);
        }
      }
    });
  }

  // All terms of packed column j, rounded.
  void read_column(int64_t j, T* target) const {
    const int64_t column = column_of(j);
    if (column < 0) return (void)std::fill_n(target, depth_, T(0));
    if (rows_.empty() && row_stride_ == 1 && depth_ == w_.k)
      return to_packed(weight_ + column * column_stride_, target, depth_, w_.operand);
    std::vector<Source> line(depth_);
    for (int64_t i = 0; i < depth_; ++i) line[i] = at(row_of(i), column);
    to_packed(line.data(), target, depth_, w_.operand);
  }

  void pack_by_columns(T* target) const {
    parallel_for(w_.blocks(), 1, [&](int64_t begin, int64_t end) {
      std::vector<Unit> held(kGroup * depth_);
      for (int64_t block = begin; block < end; ++block) pack_columns(block, held.data(), target + block * depth_ * kBlock);
    });
  }

  void pack_columns(int64_t block, Unit* held, T* target) const {
    const int64_t count = depth_ / kTerms;
    const Unit* lines[kGroup];
    for (int64_t j = 0; j < kGroup; ++j) lines[j] = held + j * count;
    for (int64_t first = 0; first < kBlock; first += kGroup) {
      for (int64_t j = 0; j < kGroup; ++j) read_column(block * kBlock + first + j, reinterpret_cast<T*>(held + j * count));
      interleave_units(lines, count, reinterpret_cast<Unit*>(target) + first * count);
    }
  }
};

template <typename Source, typename T, typename Unit>
void pack_all(const at::Tensor& weight, Packed& w, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows) {
  BlockPacker<Source, T, Unit>(weight, w, columns, rows).pack_all(static_cast<T*>(w.data.mutable_data_ptr()));
}

// Quantizes column by column: made once for the inference of many batches, so it need not be fast.
void pack_int8(const at::Tensor& weight, Packed& w, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows) {
  const int64_t depth = padded(w.k, w.operand), unit = w.operand == Operand::Int8Quads ? 4 : 2, held = w.blocks() * kBlock;
  w.scale = at::zeros({held}, at::kFloat);
  w.offset = at::zeros({held}, at::kInt);
  w.data.zero_();
  const float* source = weight.const_data_ptr<float>();
  parallel_for(w.n, kGroup, [&](int64_t begin, int64_t end) {
    std::vector<float> line(w.k);
    std::vector<int8_t> integers(w.k);
    for (int64_t j = begin; j < end; ++j) {
      const int64_t column = picked(columns, j);
      if (column < 0) continue;
      for (int64_t i = 0; i < w.k; ++i) {
        const int64_t row = picked(rows, i);
        line[i] = row < 0 ? 0.0f : source[row * weight.stride(0) + column * weight.stride(1)];
      }
      w.scale.mutable_data_ptr<float>()[j] = quantize(line.data(), integers.data(), w.k);
      if (w.operand == Operand::Int8Quads)
        w.offset.mutable_data_ptr<int32_t>()[j] = 128 * std::accumulate(integers.begin(), integers.end(), int32_t{0});
      int8_t* target = w.data.mutable_data_ptr<int8_t>() + j / kGroup * kGroup * depth + j % kGroup * unit;
      for (int64_t i = 0; i < w.k; ++i) target[i / unit * kGroup * unit + i % unit] = integers[i];
    }
  });
}

}  // namespace

Packed pack(const at::Tensor& weight, Operand operand, const std::vector<int64_t>& columns, const std::vector<int64_t>& rows) {
  Packed w;
  w.operand = operand;
  w.k = rows.empty() ? weight.size(0) : static_cast<int64_t>(rows.size());
  w.n = columns.empty() ? weight.size(1) : static_cast<int64_t>(columns.size());
  w.data = empty_buffer({w.blocks() * kBlock * padded(w.k, operand)}, weight.options().dtype(packed_type(operand)));
  if (w.data.numel() == 0) return w;
  if (is_int8(operand))
    pack_int8(weight, w, columns, rows);
  else if (operand == Operand::Float64)
    pack_all<double, double, double>(weight, w, columns, rows);
  else if (operand == Operand::Float32)
    pack_all<float, float, uint32_t>(weight, w, columns, rows);
  else if (operand == Operand::BFloat16Pairs)
    pack_all<float, uint16_t, uint32_t>(weight, w, columns, rows);
  else
    pack_all<float, uint16_t, uint16_t>(weight, w, columns, rows);
  return w;
}

}  // namespace elmo_fast
