#include <cstring>
#include <limits>
#include <type_traits>

#include "common/gemm.h"
#include "common/tensor.h"
#include "projected_lstm/cells.h"
#include "projected_lstm/layout.h"

namespace elmo_fast::projected_lstm {
namespace {

ELMO_MULTIVERSION void run_cells(const Cells<float>& cells, const char* next) { cells_forward<float, false>(cells, next); }
ELMO_MULTIVERSION void run_cells_saving(const Cells<float>& cells, const char* next) { cells_forward<float, true>(cells, next); }
void run_cells(const Cells<double>& cells, const char* next) { cells_forward<double, false>(cells, next); }
void run_cells_saving(const Cells<double>& cells, const char* next) { cells_forward<double, true>(cells, next); }

#ifdef ELMO_AMX

// Between two rows, some steps of the next block's product: its weights come from memory while the cells compute.
template <bool Save>
ELMO_AMX_AND_VECTORS void run_cells_beside(const Cells<float>& cells, const TileProduct& next) {
  const int64_t steps = next.steps(), in_row = (steps + cells.rows - 1) / cells.rows;
  for (int64_t row = 0, i = 0; row < cells.rows; ++row) {
    for (const int64_t end = std::min(steps, i + in_row); i < end; ++i) next.step(i);
    cells_of_row<float, Save>(cells, row);
  }
}

#else

template <bool Save>
void run_cells_beside(const Cells<float>&, const TileProduct&) {}

#endif

// One direction of one layer while it runs. Buffers are in sorted row order; `*_operands` are what products read.
template <typename T>
struct Direction {
  bool reverse;
  Packed input_weight, recurrent_weight;
  std::optional<Packed> projection;
  Tensor x, x_operands, h, c, h_operands, hidden, hidden_operands, mask;  // hidden: σ(o) tanh(c), where its rows are rounded whole
  std::vector<T> bias;  // in packed column order
  T* gates;  // [blocks][capacity][64]: of all positions when saving, else of the chunk of steps at hand
  T *cells, *projections, *output;  // [blocks][capacity][16], [positions, D], [B, T, D]
};

// Number of rows whose input products are computed together. Few rows a step are bound by reading weights, so the input weights are read once for
// many steps; AMX multiplies so fast that 32 rows are few. With more rows, the gates of several steps would only evict the weights from the cache.
constexpr int64_t kChunkRows = 128;
constexpr int64_t kShortChunkRows = 32;
int64_t chunk_rows(const Steps& steps) { return isa().tiles || steps.batch <= 16 ? kChunkRows : kShortChunkRows; }

// End of the steps whose input products are computed together with step s.
int64_t chunk_after(const Steps& steps, int64_t s) {
  const int64_t first = steps.offset[s], rows = chunk_rows(steps);
  while (s < steps.time && steps.offset[s] - first < rows) ++s;
  return s;
}

int64_t largest_chunk(const Steps& steps) {
  int64_t largest = 0;
  for (int64_t s = 0, end; s < steps.time; s = end) {
    end = chunk_after(steps, s);
    largest = std::max(largest, steps.offset[end] - steps.offset[s]);
  }
  return largest;
}

template <typename T>
struct Forward {
  const Sizes n;
  const Steps& steps;
  const Operand operand;
  const T cell_clip, projection_clip;
  const bool residual, save;
  const int64_t capacity;                  // rows of a block of gates
  int64_t chunk_begin = 0, chunk_end = 0;  // steps whose input products are at hand

  void run(Direction<T>& d, bool zero_state) {
    for (int64_t s = 0; s < steps.time && steps.active(s) > 0; ++s) {
      if (s == chunk_end) multiply_inputs(d, s);
      const bool from_zero = zero_state && s == 0;
      const bool stepwise = std::is_same_v<T, float> && !from_zero && goes_in_steps(d.recurrent_weight, steps.active(s));
      parallel_for(n.cell_blocks(), grain_of(steps.active(s) * (n.output + kCells) * kBlock), [&](int64_t first, int64_t last) {
        if (stepwise)
          update_cells_stepwise(d, first, last, s);
        else
          for (int64_t block = first; block < last; ++block) update_cells(d, block, s, from_zero);
        release_kernels(d.recurrent_weight);
      });
      if (needs_whole_rows(operand)) round_rows(d.hidden, d.hidden_operands, n.cells, s);
      parallel_for((n.output + kBlock - 1) / kBlock, grain_of(steps.active(s) * n.cells * kBlock), [&](int64_t first, int64_t last) {
        project(d, first, last, s);
        release_kernels(d.recurrent_weight);
      });
      if (needs_whole_rows(operand)) round_rows(d.h, d.h_operands, n.output, s);
    }
  }

  // W_ih x for the next steps: as many as make the product efficient, few enough that it is still in cache when it is used.
  void multiply_inputs(Direction<T>& d, int64_t s) {
    chunk_begin = s;
    chunk_end = chunk_after(steps, s);
    const int64_t first = steps.offset[s], rows = steps.offset[chunk_end] - first;
    multiply<T>(
        d.input_weight, operands_at(d.x_operands, operand, first, 0), d.x_operands.size(1), rows, gates_of(d, 0, first), kBlock, false, nullptr,
        capacity * kBlock);
  }

  T* gates_of(Direction<T>& d, int64_t block, int64_t packed) const {
    return d.gates + (block * capacity + (save ? packed : packed - steps.offset[chunk_begin])) * kBlock;
  }

  // The first `width` numbers of the active rows, as operands.
  void round_rows(const Tensor& from, Tensor& to, int64_t width, int64_t s) const {
    if (from.defined())
      to_operand_tile(from.template const_data_ptr<T>(), from.size(1), operands_at(to, operand, 0, 0), to.size(1), steps.active(s), width, operand);
  }

  // Gates, cell state and σ(o) tanh(c) of the 16 cells of `block`, for all active rows.
  void update_cells(Direction<T>& d, int64_t block, int64_t s, bool zero_state) const {
    T products[kRows * kBlock], hidden[kRows * kCells];
    const char* ahead = static_cast<const char*>(d.recurrent_weight.data.const_data_ptr()) +
        std::min(block + 1, n.cell_blocks() - 1) * kBlock * padded(n.output, operand) * packed_size(operand);
    if (zero_state) std::memset(products, 0, sizeof(products));
    for (int64_t row = 0; row < steps.active(s); row += kRows) {
      const int64_t rows = std::min(kRows, steps.active(s) - row);
      if (!zero_state)
        multiply_block<T>(d.recurrent_weight, block, operands_at(d.h_operands, operand, row, 0), d.h_operands.size(1), rows, products, kBlock, false);
      const auto cells = cells_of(d, block, s, row, rows, products, hidden);
      save ? run_cells_saving(cells, ahead) : run_cells(cells, ahead);
      keep_hidden(d, block, row, rows, hidden);
    }
  }

  // The same for blocks first..last-1 and few rows, each block's product in steps between the cells of the block before it.
  void update_cells_stepwise(Direction<T>& d, int64_t first, int64_t last, int64_t s) const {
    if constexpr (std::is_same_v<T, float>) {
      alignas(64) float products[2][2 * kTileRows * kBlock], hidden[2 * kTileRows * kCells];
      const int64_t rows = steps.active(s);
      const char* x = operands_at(d.h_operands, operand, 0, 0);
      multiply_block<T>(d.recurrent_weight, first, x, d.h_operands.size(1), rows, products[first % 2], kBlock, false);
      set_tile_shapes(rows);
      for (int64_t block = first; block < last; ++block) {
        const int64_t next = std::min(block + 1, last - 1);  // the last block's product is made twice, the second time for nothing
        const auto product = tile_product(d.recurrent_weight, next, x, d.h_operands.size(1), rows, products[(block + 1) % 2]);
        const auto cells = cells_of(d, block, s, 0, rows, products[block % 2], hidden);
        save ? run_cells_beside<true>(cells, product) : run_cells_beside<false>(cells, product);
        keep_hidden(d, block, 0, rows, hidden);
      }
    }
  }

  Cells<T> cells_of(Direction<T>& d, int64_t block, int64_t s, int64_t row, int64_t rows, const T* products, T* hidden) const {
    const int64_t packed = steps.offset[s] + row;
    T* before = save ? d.cells + (block * capacity + packed) * kCells : nullptr;
    T* c = d.c.template mutable_data_ptr<T>() + (block * steps.batch + row) * kCells;
    const int64_t next = std::min(block + 1, n.cell_blocks() - 1) - block;
    T* gates = gates_of(d, block, packed);
    return {rows,   products, gates,     d.bias.data() + block * kBlock,   c,
            before, hidden,   cell_clip, gates + next * capacity * kBlock, c + next * steps.batch * kCells};
  }

  void keep_hidden(Direction<T>& d, int64_t block, int64_t row, int64_t rows, const T* hidden) const {
    const int64_t first = block * kCells, width = std::min(kCells, n.cells - first);
    if (d.projection && needs_whole_rows(operand)) {
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(hidden + i * kCells, width, d.hidden.template mutable_data_ptr<T>() + (row + i) * n.cells + first);
      return;
    }
    if (d.projection)
      return to_operand_tile(hidden, kCells, operands_at(d.hidden_operands, operand, row, first), d.hidden_operands.size(1), rows, width, operand);
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(hidden + i * kCells, width, d.h.template mutable_data_ptr<T>() + (row + i) * n.output + first);
  }

  // Blocks first..last-1 of 64 outputs of all active rows: projection, clip, mask, state, residual.
  void project(Direction<T>& d, int64_t first, int64_t last, int64_t s) const {
    std::vector<T> products((last - first) * kRows * kBlock);
    for (int64_t row = 0; row < steps.active(s); row += kRows) {
      const int64_t rows = std::min(kRows, steps.active(s) - row);
      if (d.projection)
        multiply_blocks<T>(
            *d.projection, first, last, operands_at(d.hidden_operands, operand, row, 0), d.hidden_operands.size(1), rows, products.data(), kBlock,
            kRows * kBlock, false);
      for (int64_t block = first; block < last; ++block) {
        const int64_t column = block * kBlock, width = std::min(kBlock, n.output - column);
        T* h = d.h.template mutable_data_ptr<T>() + row * n.output + column;
        for (int64_t i = 0; i < rows; ++i)
          finish(d, products.data() + ((block - first) * kRows + i) * kBlock, h + i * n.output, row + i, s, column, width);
        if (needs_whole_rows(operand)) continue;
        to_operand_tile(h, n.output, operands_at(d.h_operands, operand, row, column), d.h_operands.size(1), rows, width, operand);
      }
    }
  }

  void finish(Direction<T>& d, const T* products, T* h, int64_t row, int64_t s, int64_t first, int64_t width) const {
    const int64_t position = steps.order[row] * steps.time + steps.position(row, s, d.reverse), packed = steps.offset[s] + row;
    if (d.projection) {
      if (save) std::copy_n(products, width, d.projections + packed * n.output + first);
      for (int64_t j = 0; j < width; ++j) h[j] = clip_of(products[j], projection_clip);
    } else if (save) {
      std::copy_n(h, width, d.projections + packed * n.output + first);
    }
    if (d.mask.defined()) {
      const T* mask = d.mask.template const_data_ptr<T>() + steps.order[row] * n.output + first;
      for (int64_t j = 0; j < width; ++j) h[j] *= mask[j];
    }
    T* output = d.output + position * n.output + first;
    const T* x = d.x.template const_data_ptr<T>() + packed * n.input + first;
    for (int64_t j = 0; j < width; ++j) output[j] = residual ? h[j] + x[j] : h[j];
  }
};

// With few rows, weights that are read at every step are bound by memory, or by the last-level cache if they fit.
constexpr int64_t kFewRows = 2;  // with 8 rows, the waiting in each step costs more than the cache saves
constexpr int64_t kCached = int64_t(16) << 20;

// True if a last-level cache holds the weights of one direction from step to step, but not of all directions.
bool runs_in_turn(const Sizes& n, Operand operand, bool projects) {
  const int64_t projection = projects ? n.output * padded(n.cells, operand) : 0;
  const int64_t bytes = (n.gate_columns() * padded(n.output, operand) + projection) * packed_size(operand);
  return n.batch <= kFewRows && bytes <= kCached && n.directions * bytes > kCached;
}

// The bias of each packed column, zero where the column holds no cell.
template <typename T>
std::vector<T> ordered_bias(const Tensor& bias, const std::vector<int64_t>& order) {
  const auto given = bias.contiguous();
  std::vector<T> ordered(order.size());
  for (size_t j = 0; j < order.size(); ++j) ordered[j] = order[j] < 0 ? T(0) : given.template const_data_ptr<T>()[order[j]];
  return ordered;
}

// Zeros of [B, T, width] at the positions past a row's length.
template <typename T>
void clear_padding(T* output, const Steps& steps, int64_t width) {
  for (int64_t i = 0; i < steps.batch; ++i) {
    T* row = output + steps.order[i] * steps.time * width;
    std::fill(row + steps.length[i] * width, row + steps.time * width, T(0));
  }
}

// outputs, h, c, and what backward needs: gates, cells and projections of all steps.
using Results = std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>>;

template <typename T>
Results forward_of(
    const Arguments& check, const LstmArguments& g, TensorList bias, const Sizes& n, Operand operand, bool save, const Copies& packed) {
  const Steps steps(g.lengths, n.batch, n.time);
  const auto dtype = g.inputs[0].scalar_type();
  const int64_t positions = n.batch * n.time, blocks = n.cell_blocks(), saved = save ? positions : 0;
  const int64_t capacity = save ? positions : largest_chunk(steps);
  auto outputs = empty({n.directions, n.batch, n.time, n.output}, dtype);
  auto h = empty({n.directions, n.batch, n.output}, dtype), c = empty({n.directions, n.batch, n.cells}, dtype);
  auto gates = empty_buffer({n.directions, blocks, capacity, kBlock}, dtype);
  auto cells = empty_buffer({n.directions, blocks, saved, kCells}, dtype);
  auto projections = empty({n.directions, saved, n.output}, dtype);
  const auto order = gate_order(n.cells);
  each_direction(n.directions, runs_in_turn(n, operand, !g.weight_hr.empty()), [&](int64_t r) {
    Direction<T> d;
    d.reverse = g.reverse[r];
    d.input_weight = packed_of(check, {g.weight_ih[r].t(), order}, operand, packed, r);
    d.recurrent_weight = packed_of(check, {g.weight_hh[r].t(), order}, operand, packed, n.directions + r);
    if (!g.weight_hr.empty())
      d.projection = packed_of(check, g.weight_hr[r].t(), operand, packed, 2 * n.directions + r);
    d.x = gather_steps<T>(g.inputs[r], steps, d.reverse);
    d.h = sorted_rows<T>(g.h0, r, steps, n.output, g.inputs[0]);
    d.c = to_blocks(sorted_rows<T>(g.c0, r, steps, n.padded_cells(), g.inputs[0]));
    d.h_operands = to_operand_rows(d.h, operand).clone();
    d.hidden_operands = zeros({n.batch, row_width(n.cells, operand) + kSkew}, storage_type(operand));
    if (needs_whole_rows(operand) && d.projection) d.hidden = empty({n.batch, n.cells}, dtype);
    if (!g.masks.empty()) d.mask = g.masks[r].contiguous();
    d.gates = gates[r].mutable_data_ptr<T>();
    d.cells = cells[r].mutable_data_ptr<T>();
    d.projections = projections[r].mutable_data_ptr<T>();
    d.output = outputs[r].mutable_data_ptr<T>();
    d.x_operands = to_operand_rows(d.x, operand);
    d.bias = ordered_bias<T>(bias[r], order);
    clear_padding(d.output, steps, n.output);
    if (save) {  // what no position owns is zero, not whatever the memory held
      gates[r].slice(1, steps.valid()).zero_();
      cells[r].slice(1, steps.valid()).zero_();
      projections[r].slice(0, steps.valid()).zero_();
    }
    Forward<T>{n, steps, operand, static_cast<T>(g.cell_clip), static_cast<T>(g.projection_clip), g.residual, save, capacity}.run(d, !g.h0);
    restore_order<T>(d.h, steps, n.output, h[r].mutable_data_ptr<T>());
    restore_order<T>(from_blocks(d.c), steps, n.cells, c[r].mutable_data_ptr<T>());
  });
  if (!save) return {outputs, h, c, {}};
  return {outputs, h, c, {gates, cells, projections}};
}

Results forward(
    TensorList inputs, TensorList weight_ih, TensorList weight_hh, TensorList bias, TensorList weight_hr,
    const std::optional<Tensor>& lengths, const std::optional<Tensor>& h0, const std::optional<Tensor>& c0, TensorList masks,
    const std::vector<bool>& reverse, double cell_clip, double projection_clip, bool residual, const Name& precision, bool save,
    const Copies& packed) {
  const Arguments check("projected_lstm");
  const LstmArguments g{inputs, weight_ih, weight_hh, weight_hr, lengths, h0, c0, masks, reverse, cell_clip, projection_clip, residual};
  const Sizes n = checked_sizes(check, g);
  const auto dtype = inputs[0].scalar_type();
  check.need(bias.size() == inputs.size(), "bias must be one per direction, ", inputs.size(), "; got ", bias.size());
  check.tensors("bias", bias, dtype, {kGates * n.cells});
  const Operand operand = resolve_operand(precision, dtype, !save);
  return by_type(dtype, [&]<typename T>() { return forward_of<T>(check, g, bias, n, operand, save, packed); });
}

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("projected_lstm", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace elmo_fast::projected_lstm

namespace elmo_fast {

Layout gates_layout(const Tensor& weight) {
  return {weight.t(), projected_lstm::gate_order(weight.size(0) / projected_lstm::kGates)};
}

}  // namespace elmo_fast
