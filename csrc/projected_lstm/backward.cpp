#include <cstring>
#include <limits>
#include <optional>

#include "common/gemm.h"
#include "common/tensor.h"
#include "projected_lstm/cells.h"
#include "projected_lstm/layout.h"

namespace elmo_fast::projected_lstm {
namespace {

ELMO_MULTIVERSION void run_cells_backward(
    int64_t rows, const float* dh, const float* gates, const float* before, const float* previous, float previous_clip, float* dc, float* dgates,
    double* bias, float* h, int64_t ld_h, float clip) {
  cells_backward<float>(rows, dh, gates, before, previous, previous_clip, dc, dgates, bias, h, ld_h, clip);
}
void run_cells_backward(
    int64_t rows, const double* dh, const double* gates, const double* before, const double* previous, double previous_clip, double* dc,
    double* dgates, double* bias, double* h, int64_t ld_h, double clip) {
  cells_backward<double>(rows, dh, gates, before, previous, previous_clip, dc, dgates, bias, h, ld_h, clip);
}

// One direction while its gradient walks from the last step to the first. Buffers in sorted row order, or packed step by step.
template <typename T>
struct Direction {
  bool reverse;
  Packed recurrent_weight;
  std::optional<Packed> projection;
  Tensor dy, c0, mask;                  // dy packed; mask in the caller's row order
  Tensor dh, dc;                        // [B, D], [blocks][B][16]: gradients of the state that leaves the step at hand
  Tensor dm, dm_operands;               // packed [positions, D]: gradient before the projection clip
  Tensor dgates;                        // packed [positions, 4H' + kSkew] operands
  Tensor hidden;                        // packed [positions, H' + kSkew]: σ(o) tanh(c)
  Tensor dbias;                         // [4H'] double, in packed column order
  const T *gates, *cells, *projections;
};

template <typename T>
struct Backward {
  const Sizes n;
  const Steps& steps;
  const Operand operand;
  const T cell_clip, projection_clip;

  void run(Direction<T>& d) const {
    for (int64_t s = steps.time - 1; s >= 0; --s) {
      if (steps.active(s) == 0) continue;
      enter_projection(d, s);
      parallel_for((n.cells + kBlock - 1) / kBlock, grain_of(steps.active(s) * (n.output + kBlock) * kBlock), [&](int64_t first, int64_t last) {
        for (int64_t block = first; block < last; ++block) cells_of_block(d, block, s);
        release_kernels(d.recurrent_weight);
      });
      parallel_for((n.output + kBlock - 1) / kBlock, grain_of(steps.active(s) * n.gate_columns() * kBlock), [&](int64_t first, int64_t last) {
        through_recurrence(d, first, last, s);
        release_kernels(d.recurrent_weight);
      });
    }
  }

  // dm = (dy + dh) * mask, where the projection was not clipped.
  void enter_projection(Direction<T>& d, int64_t s) const {
    const bool all = !d.projection || projection_clip == std::numeric_limits<T>::infinity();  // no clip, which passes NaN's gradient too
    for (int64_t i = 0; i < steps.active(s); ++i) {
      const int64_t packed = (steps.offset[s] + i) * n.output;
      const T* dy = d.dy.template const_data_ptr<T>() + packed;
      const T* dh = d.dh.template const_data_ptr<T>() + i * n.output;
      const T* mask = d.mask.defined() ? d.mask.template const_data_ptr<T>() + steps.order[i] * n.output : nullptr;
      const T* before = d.projections + packed;
      T* dm = d.dm.template mutable_data_ptr<T>() + packed;
      for (int64_t j = 0; j < n.output; ++j) {
        const T total = (dy[j] + dh[j]) * (mask == nullptr ? T(1) : mask[j]);
        dm[j] = all || (before[j] >= -projection_clip && before[j] <= projection_clip) ? total : T(0);
      }
      if (d.projection) to_operands(dm, operands_at(d.dm_operands, operand, steps.offset[s] + i, 0), n.output, operand);
    }
  }

  // dm · W_hr for 64 cells of all active rows, then the gradient of their gates and cell states.
  void cells_of_block(Direction<T>& d, int64_t block, int64_t s) const {
    T dh_tile[kRows * kBlock];
    const int64_t first = block * kBlock, groups = std::min(kBlock / kCells, n.cell_blocks() - first / kCells);
    for (int64_t row = 0; row < steps.active(s); row += kRows) {
      const int64_t rows = std::min(kRows, steps.active(s) - row), packed = steps.offset[s] + row;
      if (d.projection) {
        multiply_block<T>(*d.projection, block, operands_at(d.dm_operands, operand, packed, 0), d.dm_operands.size(1), rows, dh_tile, kBlock, false);
      } else {
        const int64_t width = std::min(kBlock, n.output - first);
        std::memset(dh_tile, 0, sizeof(dh_tile));
        for (int64_t i = 0; i < rows; ++i)
          std::copy_n(d.dm.template const_data_ptr<T>() + (packed + i) * n.output + first, width, dh_tile + i * kBlock);
      }
      for (int64_t group = 0; group < groups; ++group) cells_of_group(d, first / kCells + group, s, row, rows, dh_tile + group * kCells);
    }
  }

  void cells_of_group(Direction<T>& d, int64_t group, int64_t s, int64_t row, int64_t rows, const T* dh) const {
    T dgates[kRows * kBlock];
    const int64_t capacity = steps.batch * steps.time, first = group * capacity, packed = steps.offset[s] + row;
    const T* previous = s == 0 ? d.c0.template const_data_ptr<T>() + (group * steps.batch + row) * kCells
                               : d.cells + (first + steps.offset[s - 1] + row) * kCells;
    const T previous_clip = s == 0 ? std::numeric_limits<T>::infinity() : cell_clip;  // the initial state is not clipped
    run_cells_backward(
        rows, dh, d.gates + (first + packed) * kBlock, d.cells + (first + packed) * kCells, previous, previous_clip,
        d.dc.template mutable_data_ptr<T>() + (group * steps.batch + row) * kCells, dgates,
        d.dbias.template mutable_data_ptr<double>() + group * kBlock,
        d.hidden.template mutable_data_ptr<T>() + packed * d.hidden.size(1) + group * kCells, d.hidden.size(1), cell_clip);
    // Lanes past the last cell hold NaN where x is infinite, which the zeros that they meet in W_hh do not stop.
    if (const int64_t held = n.cells - group * kCells; held < kCells)
      for (int64_t line = 0; line < rows * kGates; ++line) std::fill(dgates + line * kCells + held, dgates + (line + 1) * kCells, T(0));
    to_operand_tile(dgates, kBlock, operands_at(d.dgates, operand, packed, group * kBlock), d.dgates.size(1), rows, kBlock, operand);
  }

  // dh of the step before: dgates · W_hh, blocks first..last-1 of 64 columns.
  void through_recurrence(Direction<T>& d, int64_t first, int64_t last, int64_t s) const {
    std::vector<T> tile((last - first) * kRows * kBlock);
    for (int64_t row = 0; row < steps.active(s); row += kRows) {
      const int64_t rows = std::min(kRows, steps.active(s) - row);
      multiply_blocks<T>(
          d.recurrent_weight, first, last, operands_at(d.dgates, operand, steps.offset[s] + row, 0), d.dgates.size(1), rows, tile.data(), kBlock,
          kRows * kBlock, false);
      for (int64_t block = first; block < last; ++block) {
        const int64_t column = block * kBlock, width = std::min(kBlock, n.output - column);
        for (int64_t i = 0; i < rows; ++i)
          std::copy_n(
              tile.data() + ((block - first) * kRows + i) * kBlock, width,
              d.dh.template mutable_data_ptr<T>() + (row + i) * n.output + column);
      }
    }
  }
};

// Packed gate columns [positions, 4H'] -> [4H, positions] in torch's gate order: the left operand of the weights' gradients.
template <typename T>
void transpose_gates(const T* dgates, int64_t ld_gates, const Sizes& n, int64_t positions, int64_t ld, T* target) {
  parallel_for(n.cell_blocks() * kGates, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t cell = i / kGates * kCells, gate = i % kGates;
      transpose(dgates + i * kCells, ld_gates, positions, std::min(kCells, n.cells - cell), target + (gate * n.cells + cell) * ld, ld);
    }
  });
}

Tensor transposed_gates(const Tensor& dgates, const Sizes& n, Operand operand) {
  const int64_t positions = dgates.size(0), ld = padded(positions, operand);
  auto target = empty_buffer({n.cells * kGates, ld}, dgates.scalar_type());
  if (ld > positions) target.select(1, positions).zero_();
  if (operand == Operand::BFloat16Pairs)
    transpose_gates(
        static_cast<const uint16_t*>(dgates.const_data_ptr()), dgates.size(1), n, positions, ld, static_cast<uint16_t*>(target.mutable_data_ptr()));
  else if (operand == Operand::Float64)
    transpose_gates(dgates.const_data_ptr<double>(), dgates.size(1), n, positions, ld, target.mutable_data_ptr<double>());
  else
    transpose_gates(
        static_cast<const uint32_t*>(dgates.const_data_ptr()), dgates.size(1), n, positions, ld, static_cast<uint32_t*>(target.mutable_data_ptr()));
  return target;
}

// The state that entered each packed position: h0 at the first step, then the clipped and masked projection of the step before.
template <typename T>
Tensor entering_state(const Direction<T>& d, const Tensor& h0, const Steps& steps, int64_t width, T clip) {
  auto rows = empty({steps.valid(), width}, h0.scalar_type());
  T* target = rows.template mutable_data_ptr<T>();
  if (steps.valid() > 0) std::copy_n(h0.template const_data_ptr<T>(), steps.active(0) * width, target);
  for (int64_t s = 1; s < steps.time; ++s)
    for (int64_t i = 0; i < steps.active(s); ++i) {
      const T* before = d.projections + (steps.offset[s - 1] + i) * width;
      const T* mask = d.mask.defined() ? d.mask.template const_data_ptr<T>() + steps.order[i] * width : nullptr;
      T* row = target + (steps.offset[s] + i) * width;
      for (int64_t j = 0; j < width; ++j)
        row[j] = (d.projection ? clip_of(before[j], clip) : before[j]) * (mask == nullptr ? T(1) : mask[j]);
    }
  return rows;
}

// Of the inputs, one for each direction; of W_ih, W_hh, bias and W_hr, all directions in one; of h0 and c0.
using Gradients = std::tuple<std::vector<Tensor>, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Packed rows of a direction -> dx [B, T, I]; positions past a row's length get zero.
template <typename T>
Tensor scatter_steps(const Tensor& rows, const Tensor* residual, const Sizes& n, const Steps& steps, bool reverse) {
  auto dx = zeros({n.batch, n.time, n.input}, rows.scalar_type());
  T* target = dx.template mutable_data_ptr<T>();
  for (int64_t s = 0; s < steps.time; ++s)
    for (int64_t i = 0; i < steps.active(s); ++i) {
      const int64_t packed = (steps.offset[s] + i) * n.input;
      T* row = target + (steps.order[i] * steps.time + steps.position(i, s, reverse)) * n.input;
      std::copy_n(rows.template const_data_ptr<T>() + packed, n.input, row);
      if (residual == nullptr) continue;
      const T* dy = residual->template const_data_ptr<T>() + packed;
      for (int64_t j = 0; j < n.input; ++j) row[j] += dy[j];
    }
  return dx;
}

template <typename T>
Gradients backward_of(
    const Tensor& d_outputs, const std::optional<Tensor>& d_h, const std::optional<Tensor>& d_c, TensorList saved, const LstmArguments& g,
    const Sizes& n, Operand operand, bool need_inputs, bool need_weights, bool need_state) {
  const Steps steps(g.lengths, n.batch, n.time);
  const int64_t positions = steps.valid(), columns = n.gate_columns();
  const auto dtype = g.inputs[0].scalar_type(), held = storage_type(operand);
  const auto order = gate_order(n.cells);
  std::vector<Tensor> dx(need_inputs ? n.directions : 0);
  const auto stacked = [&](bool needed, int64_t rows, int64_t width) {
    return needed ? empty_buffer({n.directions, rows, width}, dtype) : empty({0}, dtype);
  };
  const int64_t gates = kGates * n.cells;
  const Tensor d_ih = stacked(need_weights, gates, n.input), d_hh = stacked(need_weights, gates, n.output);
  const Tensor d_bias = empty(need_weights ? std::vector<int64_t>{n.directions, gates} : std::vector<int64_t>{0}, dtype);
  const Tensor d_hr = stacked(need_weights && !g.weight_hr.empty(), n.output, n.cells);
  auto dh0 = empty({n.directions, n.batch, n.output}, dtype), dc0 = empty({n.directions, n.batch, n.cells}, dtype);
  each_direction(n.directions, false, [&](int64_t r) {
    Direction<T> d;
    d.reverse = g.reverse[r];
    d.recurrent_weight = pack({g.weight_hh[r], {}, order}, operand);
    if (!g.weight_hr.empty()) d.projection = pack(g.weight_hr[r], operand);
    d.dy = gather_steps<T>(d_outputs[r], steps, d.reverse);
    d.c0 = to_blocks(sorted_rows<T>(g.c0, r, steps, n.padded_cells(), g.inputs[0]));
    d.dh = sorted_rows<T>(d_h, r, steps, n.output, g.inputs[0]);
    d.dc = to_blocks(sorted_rows<T>(d_c, r, steps, n.padded_cells(), g.inputs[0]));
    if (!g.masks.empty()) d.mask = g.masks[r].contiguous();
    d.dm = empty_buffer({positions, n.output}, dtype);
    d.dm_operands = zeros({positions, padded(n.output, operand)}, held);
    d.dgates = empty_buffer({positions, columns + kSkew}, held);
    d.hidden = empty_buffer({positions, n.padded_cells() + kSkew}, dtype);
    d.dbias = zeros({columns}, kDouble);
    d.gates = saved[0][r].template const_data_ptr<T>();
    d.cells = saved[1][r].template const_data_ptr<T>();
    d.projections = saved[2][r].template const_data_ptr<T>();
    Backward<T>{n, steps, operand, static_cast<T>(g.cell_clip), static_cast<T>(g.projection_clip)}.run(d);

    restore_order<T>(d.dh, steps, n.output, dh0[r].mutable_data_ptr<T>());
    restore_order<T>(from_blocks(d.dc), steps, n.cells, dc0[r].mutable_data_ptr<T>());
    if (need_inputs) {
      const auto rows = empty({positions, n.input}, dtype);
      multiply_operands(pack({g.weight_ih[r], {}, order}, operand), d.dgates, rows);
      dx[r] = scatter_steps<T>(rows, g.residual ? &d.dy : nullptr, n, steps, d.reverse);
    }
    if (!need_weights) return;
    const auto left = transposed_gates(d.dgates, n, operand);
    const auto start = sorted_rows<T>(g.h0, r, steps, n.output, g.inputs[0]);
    multiply_operands(pack(gather_steps<T>(g.inputs[r], steps, d.reverse), operand), left, d_ih[r]);
    if (!g.h0 && positions > 0) left.narrow(1, 0, steps.active(0)).zero_();  // no state: NaN in the first step meets no zeros
    multiply_operands(pack(entering_state<T>(d, start, steps, n.output, static_cast<T>(g.projection_clip)), operand), left, d_hh[r]);
    if (d.projection) multiply_rows(pack(d.hidden.narrow(1, 0, n.cells), operand), d.dm.t(), d_hr[r]);
    T* of_bias = d_bias.mutable_data_ptr<T>() + r * gates;
    for (int64_t j = 0; j < columns; ++j)
      if (order[j] >= 0) of_bias[order[j]] = static_cast<T>(d.dbias.template const_data_ptr<double>()[j]);
  });
  if (!need_state) dh0 = empty({0}, dtype), dc0 = empty({0}, dtype);
  return {dx, d_ih, d_hh, d_bias, d_hr, dh0, dc0};
}

Gradients backward(
    const Tensor& d_outputs, const std::optional<Tensor>& d_h, const std::optional<Tensor>& d_c, TensorList saved, TensorList inputs,
    TensorList weight_ih, TensorList weight_hh, TensorList /*bias*/, TensorList weight_hr, const std::optional<Tensor>& lengths,
    const std::optional<Tensor>& h0, const std::optional<Tensor>& c0, TensorList masks, const std::vector<bool>& reverse, double cell_clip,
    double projection_clip, bool residual, const Name& precision, bool need_inputs, bool need_weights, bool need_state) {
  const Arguments check("projected_lstm_backward");
  check.saved(saved, 3);
  const LstmArguments g{inputs, weight_ih, weight_hh, weight_hr, lengths, h0, c0, masks, reverse, cell_clip, projection_clip, residual};
  const Sizes n = checked_sizes(check, g);
  const auto dtype = inputs[0].scalar_type();
  check.tensor("d_outputs", d_outputs, dtype, {n.directions, n.batch, n.time, n.output});
  check.tensor("d_h", d_h, dtype, {n.directions, n.batch, n.output});
  check.tensor("d_c", d_c, dtype, {n.directions, n.batch, n.cells});
  check.tensor("gates", saved[0], dtype, {n.directions, n.cell_blocks(), n.batch * n.time, kBlock});
  check.tensor("cells", saved[1], dtype, {n.directions, n.cell_blocks(), n.batch * n.time, kCells});
  check.tensor("projections", saved[2], dtype, {n.directions, n.batch * n.time, n.output});
  for (const Tensor& each : saved) check.contiguous("gates, cells and projections", each);
  const Operand operand = resolve_operand(precision, dtype);
  return by_type(dtype, [&]<typename T>() {
    return backward_of<T>(d_outputs, d_h, d_c, saved, g, n, operand, need_inputs, need_weights, need_state);
  });
}

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("projected_lstm_backward", TORCH_BOX(&backward)); }

}  // namespace
}  // namespace elmo_fast::projected_lstm
