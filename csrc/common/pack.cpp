// Rearranging the right operand of a product into blocks of 64 columns. In training this happens at every step, so it reads and writes
// whole cache lines and leaves the elements to vector loops.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "common/gemm.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace elmo_fast {
namespace {

template <typename Unit>
ELMO_INLINE void interleave(const Unit* const* lines, int64_t begin, int64_t end, Unit* target) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < kGroup; ++j) target[i * kGroup + j] = lines[j][i];
}

#if __has_builtin(__builtin_shufflevector)

// Columns i..i+7 of lines 0..7, transposed in registers: pairs of numbers, of pairs and of halves change places. Compilers see no more than
// single numbers in the loop above.
ELMO_INLINE void transpose_eight(const uint32_t* const* lines, int64_t i, uint32_t* target) {
  typedef uint32_t Eight __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint64_t Four __attribute__((vector_size(32)));
  Four pairs[8], fours[8];
  for (int64_t j = 0; j < 8; j += 2) {
    const Eight a = *reinterpret_cast<const Eight*>(lines[j] + i), b = *reinterpret_cast<const Eight*>(lines[j + 1] + i);
    pairs[j] = (Four)__builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[j + 1] = (Four)__builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int64_t j = 0; j < 8; j += 4)
    for (int64_t k = 0; k < 2; ++k) {
      fours[j + 2 * k] = __builtin_shufflevector(pairs[j + k], pairs[j + 2 + k], 0, 4, 2, 6);
      fours[j + 2 * k + 1] = __builtin_shufflevector(pairs[j + k], pairs[j + 2 + k], 1, 5, 3, 7);
    }
  for (int64_t k = 0; k < 4; ++k) {
    *reinterpret_cast<Eight*>(target + k * kGroup) = (Eight)__builtin_shufflevector(fours[k], fours[4 + k], 0, 1, 4, 5);
    *reinterpret_cast<Eight*>(target + (4 + k) * kGroup) = (Eight)__builtin_shufflevector(fours[k], fours[4 + k], 2, 3, 6, 7);
  }
}

}  // namespace

ELMO_MULTIVERSION void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target) {
  const int64_t whole = count / 16 * 16;
  for (int64_t i = 0; i < whole; i += 16)
    for (int64_t half = 0; half < kGroup; half += 8) {
      transpose_eight(lines + half, i, target + i * kGroup + half);
      transpose_eight(lines + half, i + 8, target + (i + 8) * kGroup + half);
    }
  interleave(lines, whole, count, target);
}

#else

}  // namespace

ELMO_MULTIVERSION void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target) {
  interleave(lines, 0, count, target);
}

#endif

ELMO_MULTIVERSION void interleave_units(const uint16_t* const* lines, int64_t count, uint16_t* target) {
  interleave(lines, 0, count, target);
}
void interleave_units(const double* const* lines, int64_t count, double* target) { interleave(lines, 0, count, target); }

template <typename Unit>
void transpose(const Unit* source, int64_t ld_source, int64_t rows, int64_t count, Unit* target, int64_t ld_target) {
  alignas(64) Unit columns[kBlock * kGroup];  // of 16 rows
  const Unit* lines[kGroup];
  for (int64_t first = 0; first < rows; first += kGroup) {
    for (int64_t i = 0; i < kGroup; ++i) lines[i] = source + std::min(first + i, rows - 1) * ld_source;
    interleave_units(lines, count, columns);
    const auto write = [&](int64_t n) {
      for (int64_t j = 0; j < count; ++j) std::copy_n(columns + j * kGroup, n, target + j * ld_target + first);
    };
    first + kGroup <= rows ? write(kGroup) : write(rows - first);  // a loop over whole cache lines knows their length
  }
}
template void transpose<uint16_t>(const uint16_t*, int64_t, int64_t, int64_t, uint16_t*, int64_t);
template void transpose<uint32_t>(const uint32_t*, int64_t, int64_t, int64_t, uint32_t*, int64_t);
template void transpose<double>(const double*, int64_t, int64_t, int64_t, double*, int64_t);

Tensor transposed_copy(const Tensor& x) {
  const int64_t m = x.size(0), k = x.size(1);
  const Tensor copy = empty(x.sizes(), x.scalar_type());
  by_type(x.scalar_type(), [&]<typename T>() {
    using Unit = std::conditional_t<std::is_same_v<T, double>, double, uint32_t>;
    const auto* from = static_cast<const Unit*>(x.const_data_ptr());
    auto* to = static_cast<Unit*>(copy.mutable_data_ptr());
    for (int64_t i = 0; i < m; i += kBlock) transpose(from + i, x.stride(1), k, std::min(kBlock, m - i), to + i * k, k);
  });
  return copy;
}

namespace {

// target[j] = (even[j], odd[j]) for the 64 columns of a block.
ELMO_MULTIVERSION void zip_columns(const uint16_t* even, const uint16_t* odd, uint32_t* target) {
  for (int64_t j = 0; j < kBlock; ++j) target[j] = even[j] | static_cast<uint32_t>(odd[j]) << 16;
}

// Copies whole cache lines (64 bytes, the target aligned to them) past the caches: a large target is gone from them before it is read, and
// a store through them would read each line first. Other threads may read it after `finish_writes` on this one.
void write_past_caches(const void* source, void* target, int64_t bytes) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(
        reinterpret_cast<__m128i*>(static_cast<char*>(target) + i),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(source) + i)));
#else
  std::memcpy(target, source, bytes);
#endif
}
void finish_writes() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

constexpr int64_t kStrip = 8;   // blocks that are packed together when W is read by rows
constexpr int64_t kPart = 512;  // rows of a task
constexpr int64_t kStretch = 128;  // terms of 16 columns that are packed together when W is read by columns
constexpr int64_t kLarge = int64_t(8) << 20;  // bytes of a packed weight that does not stay in a cache until it is read

int64_t picked(const std::vector<int64_t>& order, int64_t i) { return order.empty() ? i : order[i]; }

// Writes column blocks of W, reading along whichever of its rows and columns lies contiguous in memory. T: what the operand is held in;
// Unit: what lies side by side of a column, one T or two.
template <typename Source, typename T, typename Unit>
class BlockPacker {
 public:
  BlockPacker(const Layout& l, const Packed& w)
      : weight_(l.matrix.const_data_ptr<Source>()), row_stride_(l.matrix.stride(0)), column_stride_(l.matrix.stride(1)), w_(w),
        columns_(l.columns), rows_(l.rows), depth_(padded(w.k, w.operand)), large_(w.data.nbytes() >= kLarge) {}

  void pack_all(T* target) const { column_stride_ == 1 ? pack_by_rows(target) : pack_by_columns(target); }

 private:
  static constexpr int64_t kTerms = sizeof(Unit) / sizeof(T);

  const Source* weight_;
  const int64_t row_stride_, column_stride_;
  const Packed& w_;
  const std::vector<int64_t>&columns_, &rows_;
  const int64_t depth_;
  const bool large_;

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
    Source values[kStrip * kBlock];
    for (int64_t j = 0; j < count; ++j) values[j] = at(row, column_of(begin + j));
    to_packed(values, line, count, w_.operand);
    return line;
  }

  // `count` of what a kernel reads of a column, for each of 16 columns.
  void write(const Unit* from, int64_t count, T* to) const {
    const int64_t bytes = count * kGroup * static_cast<int64_t>(sizeof(Unit));
    large_ && bytes % 64 == 0 ? write_past_caches(from, to, bytes) : (void)std::memcpy(to, from, bytes);
  }

  void write_rows(int64_t first, int64_t last, int64_t i, const T* line, const T* next, T* target) const {
    Unit zipped[kBlock];
    for (int64_t block = first; block < last; ++block, line += kBlock, next += kBlock) {
      T* to = target + block * depth_ * kBlock + i * kGroup;
      if constexpr (kTerms == 2) zip_columns(line, next, zipped);
      for (int64_t column = 0; column < kBlock; column += kGroup)
        write(kTerms == 2 ? zipped + column : reinterpret_cast<const Unit*>(line + column), 1, to + column * depth_);
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
      finish_writes();
    });
  }

  // Terms first..last-1 of packed column j, rounded: where they lie if they need no rounding, else in `line`.
  const T* read_column(int64_t j, int64_t first, int64_t last, T* line) const {
    const int64_t column = column_of(j);
    if (column >= 0 && rows_.empty() && row_stride_ == 1 && last <= w_.k) {
      const Source* source = weight_ + column * column_stride_ + first;
      if constexpr (std::is_same_v<Source, T>) return source;
      to_packed(source, line, last - first, w_.operand);
      return line;
    }
    Source values[kStretch];
    for (int64_t i = first; i < last; ++i) values[i - first] = at(row_of(i), column);
    to_packed(values, line, last - first, w_.operand);
    return line;
  }

  void pack_by_columns(T* target) const {
    parallel_for(w_.blocks() * (kBlock / kGroup), 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) pack_columns(group * kGroup, target + group * kGroup * depth_);
      finish_writes();
    });
  }

  // Columns j..j+15, a chunk of their terms at a time, which stays in the first-level cache.
  void pack_columns(int64_t column, T* target) const {
    alignas(64) T held[kGroup][kStretch];
    alignas(64) Unit packed[kStretch * kGroup];
    for (int64_t first = 0; first < depth_; first += kStretch) {
      const int64_t last = std::min(first + kStretch, depth_);
      const Unit* lines[kGroup];
      for (int64_t j = 0; j < kGroup; ++j) lines[j] = reinterpret_cast<const Unit*>(read_column(column + j, first, last, held[j]));
      interleave_units(lines, (last - first) / kTerms, packed);
      write(packed, (last - first) / kTerms, target + first * kGroup);
    }
  }
};

template <typename Source, typename T, typename Unit>
void pack_all(const Layout& layout, const Packed& w) {
  BlockPacker<Source, T, Unit>(layout, w).pack_all(static_cast<T*>(w.data.mutable_data_ptr()));
}

// Quantizes column by column: made once for the inference of many batches, so it need not be fast.
void pack_int8(const Layout& layout, const Packed& w) {
  const int64_t depth = padded(w.k, w.operand), unit = w.operand == Operand::Int8Quads ? 4 : 2;
  w.data.zero_();
  const float* source = layout.matrix.const_data_ptr<float>();
  parallel_for(w.n, kGroup, [&](int64_t begin, int64_t end) {
    std::vector<float> line(w.k);
    std::vector<int8_t> integers(w.k);
    for (int64_t j = begin; j < end; ++j) {
      const int64_t column = picked(layout.columns, j);
      if (column < 0) continue;
      for (int64_t i = 0; i < w.k; ++i) {
        const int64_t row = picked(layout.rows, i);
        line[i] = row < 0 ? 0.0f : source[row * layout.matrix.stride(0) + column * layout.matrix.stride(1)];
      }
      w.scale.mutable_data_ptr<float>()[j] = quantize(line.data(), integers.data(), w.k);
      if (w.operand == Operand::Int8Quads)
        w.offset.mutable_data_ptr<int32_t>()[j] = 128 * std::accumulate(integers.begin(), integers.end(), int32_t{0});
      int8_t* target = w.data.mutable_data_ptr<int8_t>() + j / kGroup * kGroup * depth + j % kGroup * unit;
      for (int64_t i = 0; i < w.k; ++i) target[i / unit * kGroup * unit + i % unit] = integers[i];
    }
  });
}

// A packed weight without its tensors.
Packed unpacked(const Layout& layout, Operand operand) {
  Packed w;
  w.operand = operand;
  w.k = layout.rows.empty() ? layout.matrix.size(0) : static_cast<int64_t>(layout.rows.size());
  w.n = layout.columns.empty() ? layout.matrix.size(1) : static_cast<int64_t>(layout.columns.size());
  return w;
}

// The tensors of a copy; `packed` of an op has them one behind the other.
std::vector<Tensor> pack_weight(const Tensor& weight, const Name& layout, const Name& precision) {
  const Arguments check("pack_weight");
  check.tensor("weight", weight, kFloating, layout == "filters" ? std::vector<int64_t>{kAny, kAny, kAny} : std::vector<int64_t>{kAny, kAny});
  const Operand operand = resolve_operand(precision, weight.scalar_type(), true);
  const auto laid_out = [&]() -> Layout {
    if (layout == "plain") return weight.t();
    if (layout == "filters") return filters_layout(weight, operand);
    if (layout == "highway") {
      check.need(weight.size(0) == 2 * weight.size(1), "weight of highway must have shape [2W, W]; got [", weight.size(0), ", ", weight.size(1), "]");
      return highway_layout(weight);
    }
    check.need(layout == "gates", "layout must be plain, filters, highway or gates; got ", layout);
    check.need(weight.size(0) % 4 == 0, "weight of gates must have shape [4H, K]; got [", weight.size(0), ", ", weight.size(1), "]");
    return gates_layout(weight);
  };
  const Packed w = pack(laid_out(), operand);
  if (is_int8(operand)) return {w.data, w.scale, w.offset};
  return {w.data};
}

}  // namespace

Packed pack(const Layout& layout, Operand operand) {
  Packed w = unpacked(layout, operand);
  w.data = empty_buffer(w.shape(), packed_type(operand));
  if (is_int8(operand)) w.scale = zeros({w.blocks() * kBlock}, kFloat), w.offset = zeros({w.blocks() * kBlock}, kInt);
  if (w.data.numel() == 0) return w;
  if (is_int8(operand))
    pack_int8(layout, w);
  else if (operand == Operand::Float64)
    pack_all<double, double, double>(layout, w);
  else if (operand == Operand::Float32)
    pack_all<float, float, uint32_t>(layout, w);
  else if (operand == Operand::BFloat16Pairs)
    pack_all<float, uint16_t, uint32_t>(layout, w);
  else
    pack_all<float, uint16_t, uint16_t>(layout, w);
  return w;
}

Packed packed_of(const Arguments& check, const Layout& layout, Operand operand, const Copies& copies, size_t index) {
  if (!copies) return pack(layout, operand);
  const size_t parts = is_int8(operand) ? 3 : 1, first = index * parts;
  check.need(
      copies->size() >= first + parts, "packed must hold what pack_weight returned for each weight with the same precision, ", parts,
      parts == 1 ? " tensor" : " tensors", " each; got ", copies->size(), " for at least ", index + 1, " weights");
  Packed w = unpacked(layout, operand);
  w.data = (*copies)[first];
  check.tensor("packed", w.data, packed_type(operand), w.shape());
  check.contiguous("packed", w.data);
  if (parts == 1) return w;
  w.scale = (*copies)[first + 1], w.offset = (*copies)[first + 2];
  check.tensor("packed", w.scale, kFloat, {w.blocks() * kBlock});
  check.tensor("packed", w.offset, kInt, {w.blocks() * kBlock});
  check.contiguous("packed", w.scale);
  check.contiguous("packed", w.offset);
  return w;
}

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("pack_weight", TORCH_BOX(&pack_weight)); }

}  // namespace elmo_fast
