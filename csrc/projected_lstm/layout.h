// Memory layout: rows sorted by falling length, so that the active rows of every step are a prefix; gates of 16 cells adjacent.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "common/gemm.h"
#include "common/parallel.h"
#include "common/tensor.h"

namespace elmo_fast::projected_lstm {

constexpr int64_t kCells = 16;                // cells whose four gates fill one block of columns
constexpr int64_t kGates = 4;                 // i, f, g, o
constexpr int64_t kRows = 64;                 // rows of a tile of products
constexpr int64_t kSkew = 32;                 // elements between long rows, so that they do not fall into the same cache sets
static_assert(kCells * kGates == kBlock);

// Step s of a row is its s-th step in walking order. Valid positions are packed step by step: row `i` (in sorted order) of step `s`
// is packed row offset[s] + i.
struct Steps {
  int64_t batch, time;
  std::vector<int64_t> order, length, offset;

  // Without lengths all rows have `time` steps.
  Steps(const std::optional<Tensor>& lengths, int64_t batch, int64_t time) : batch(batch), time(time), order(batch), length(batch), offset(time + 1, 0) {
    std::vector<int64_t> given(batch, time);
    if (lengths.has_value()) std::copy_n(lengths->contiguous().const_data_ptr<int64_t>(), batch, given.begin());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return given[a] > given[b]; });
    for (int64_t i = 0; i < batch; ++i) {
      length[i] = given[order[i]];
      ELMO_CHECK_VALUE(
          length[i] >= 0 && length[i] <= time, "projected_lstm: lengths must lie in 0..T=", time, "; got ", length[i], " for row ", order[i]);
      for (int64_t s = 0; s < length[i]; ++s) ++offset[s + 1];
    }
    for (int64_t s = 0; s < time; ++s) offset[s + 1] += offset[s];
  }
  int64_t valid() const { return offset[time]; }
  int64_t active(int64_t s) const { return offset[s + 1] - offset[s]; }
  int64_t position(int64_t i, int64_t s, bool reverse) const { return reverse ? length[i] - 1 - s : s; }
};

// Gates and cells are stored block by block, [blocks][rows][64] and [blocks][rows][16]: 16 cells of many rows read one contiguous piece of memory,
// not one line of every 64 KiB row.
struct Sizes {
  int64_t directions, batch, time, input, output, cells;
  int64_t cell_blocks() const { return (cells + kCells - 1) / kCells; }
  int64_t padded_cells() const { return cell_blocks() * kCells; }
  int64_t gate_columns() const { return cell_blocks() * kBlock; }
};

// The arguments that both passes have; weight_hr and masks may be empty, lengths, h0 and c0 missing.
struct LstmArguments {
  TensorList inputs, weight_ih, weight_hh, weight_hr;
  const std::optional<Tensor>&lengths, &h0, &c0;
  TensorList masks;
  const std::vector<bool>& reverse;
  double cell_clip, projection_clip;
  bool residual;
};

// Raises unless they fit each other: one tensor for each direction, or none of weight_hr and masks.
inline Sizes checked_sizes(const Arguments& check, const LstmArguments& g) {
  const auto directions = static_cast<int64_t>(g.inputs.size());
  check.need(directions > 0, "inputs must hold one tensor for each direction; got none");
  const auto as_many = [&](const auto& list, bool none = false) {
    return static_cast<int64_t>(list.size()) == directions || (none && list.empty());
  };
  check.need(
      as_many(g.weight_ih) && as_many(g.weight_hh) && as_many(g.weight_hr, true) && as_many(g.masks, true) && as_many(g.reverse),
      "weights, masks and reverse must have one entry for each of ", directions, " directions");
  check.tensor("inputs[0]", g.inputs[0], kFloating, {kAny, kAny, kAny});
  const auto dtype = g.inputs[0].scalar_type();
  check.tensor("weight_hh[0]", g.weight_hh[0], dtype, {kAny, kAny});
  const Sizes n{directions,           g.inputs[0].size(0),    g.inputs[0].size(1),
                g.inputs[0].size(2), g.weight_hh[0].size(1), g.weight_hh[0].size(0) / kGates};
  const int64_t gates = kGates * n.cells;
  check.tensors("inputs", g.inputs, dtype, {n.batch, n.time, n.input});
  check.tensors("weight_ih", g.weight_ih, dtype, {gates, n.input});
  check.tensors("weight_hh", g.weight_hh, dtype, {gates, n.output});
  check.tensors("weight_hr", g.weight_hr, dtype, {n.output, n.cells});
  check.tensors("masks", g.masks, dtype, {n.batch, n.output});
  check.tensor("lengths", g.lengths, kLong, {n.batch});
  check.tensor("h0", g.h0, dtype, {n.directions, n.batch, n.output});
  check.tensor("c0", g.c0, dtype, {n.directions, n.batch, n.cells});
  check.need(!g.weight_hr.empty() || n.output == n.cells, "without weight_hr, D must equal H; got ", n.output, " and ", n.cells);
  check.need(!g.residual || n.input == n.output, "residual needs inputs as wide as outputs; got ", n.input, " and ", n.output);
  return n;
}

// Packed gate column -> row of weight_ih, weight_hh or bias (torch's order: all i, all f, all g, all o); -1 past the last cell.
inline std::vector<int64_t> gate_order(int64_t cells) {
  std::vector<int64_t> order((cells + kCells - 1) / kCells * kBlock);
  for (int64_t column = 0; column < static_cast<int64_t>(order.size()); ++column) {
    const int64_t cell = column / kBlock * kCells + column % kCells, gate = column % kBlock / kCells;
    order[column] = cell < cells ? gate * cells + cell : -1;
  }
  return order;
}

// Calls f(r) for each direction from beginning to end: on one thread one after another (its weights then stay in the cache), on two each on
// its own, so that no thread waits for another within a step; on more, each on its own group of threads. in_turn: one after another, each
// on all threads.
template <typename F>
void each_direction(int64_t directions, bool in_turn, const F& f) {
  parallel_for(directions, in_turn ? directions : 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

// x[b, position(i, s)] -> row offset[s] + i, for every valid position.
template <typename T>
Tensor gather_steps(const Tensor& x, const Steps& steps, bool reverse) {
  const auto source = x.contiguous();
  const int64_t width = x.size(2);
  auto rows = empty({steps.valid(), width}, x.scalar_type());
  const T* from = source.const_data_ptr<T>();
  T* to = rows.mutable_data_ptr<T>();
  for (int64_t s = 0; s < steps.time; ++s)
    for (int64_t i = 0; i < steps.active(s); ++i)
      std::copy_n(
          from + (steps.order[i] * steps.time + steps.position(i, s, reverse)) * width, width, to + (steps.offset[s] + i) * width);
  return rows;
}

// Where a number of a matrix of operands lies.
inline char* operands_at(const Tensor& t, Operand operand, int64_t row, int64_t column) {
  return static_cast<char*>(t.mutable_data_ptr()) + (row * t.size(1) + column) * element_size(operand);
}

// [B, H'] <-> [blocks][B][16]
inline Tensor to_blocks(const Tensor& rows) {
  return rows.view({rows.size(0), rows.size(1) / kCells, kCells}).transpose(0, 1).contiguous();
}
inline Tensor from_blocks(const Tensor& blocks) {
  return blocks.transpose(0, 1).contiguous().view({blocks.size(1), blocks.size(0) * kCells});
}

// state[r] of the caller, [B, columns] -> sorted rows, padded with zeros to `width` columns; zeros where there is none.
template <typename T>
Tensor sorted_rows(const std::optional<Tensor>& state, int64_t r, const Steps& steps, int64_t width, const Tensor& like) {
  auto sorted = zeros({steps.batch, width}, like.scalar_type());
  if (!state) return sorted;
  const auto given = state->select(0, r).contiguous();
  for (int64_t i = 0; i < steps.batch; ++i)
    std::copy_n(
        given.template const_data_ptr<T>() + steps.order[i] * given.size(1), given.size(1), sorted.template mutable_data_ptr<T>() + i * width);
  return sorted;
}

// Sorted rows -> rows in the caller's order, the first `width` columns.
template <typename T>
void restore_order(const Tensor& sorted, const Steps& steps, int64_t width, T* target) {
  for (int64_t i = 0; i < steps.batch; ++i)
    std::copy_n(sorted.template const_data_ptr<T>() + i * sorted.size(1), width, target + steps.order[i] * width);
}

}  // namespace elmo_fast::projected_lstm
