// The backward pass of char_cnn on a GPU, as index maps and arithmetic that nvcc and plain C++ compilers read; tests/csrc/backward.cpp holds
// each map to cover everything exactly once, and runs the kernels on virtual threads.
#pragma once

#include "common/host_device.h"

namespace elmo_fast::char_cnn {

constexpr int kLanes = 32;         // filters side by side
constexpr int kTaps = 3;           // positions of a window that a block serves, one warp each
constexpr int kThreads = kLanes * kTaps;
constexpr int kBins = 264;         // characters of a tile: the 262 of ELMo, within the 99 KiB of the smallest GPUs
constexpr int kVector = 16;        // numbers of a character that are multiplied together
constexpr int kMaxWidths = 32;
constexpr int kMaxSplits = 3;

static_assert(kBins * kThreads * sizeof(float) <= 99 * 1024, "shared memory of a block (compute capability 8.6)");

// One convolution: its filters are features `feature`.. and its (position, filter) pairs columns `column`..
struct Width {
  int32_t width, filters, feature, column, unit;
  const float* weight;  // [filters, E, width]
  float *d_weight, *d_bias;
};

struct Params {
  int64_t rows, slots, features, characters, size, columns;  // N, C, F, characters, E, sum of k * n_k
  int32_t splits, tiles, widths, units;
  const int64_t* count;     // rows that are words, or null: all of them
  const float *grad, *out;  // [N, F]
  const int16_t* winners;   // [N, F]
  const void* ids;          // [N, C] int64 or int32
  bool wide_ids, tanh, need_embedding, need_weights;
  Rounding rounding;        // of embedding and weights, which are operands
  const float* embedding;   // [characters, E]
  float* table;             // [characters, vectors() * 16]: embedding, rounded, zeros behind
  float* filters;           // [vectors() * 16, columns]: weights, rounded
  float* sums;              // [splits, characters, columns]
  float* d_embedding;       // [characters, E]
  Width width[kMaxWidths];

  ELMO_HOST_DEVICE int64_t vectors() const { return ceil_div(size, kVector); }
};
static_assert(sizeof(Params) <= 4096, "what a kernel takes by value");

// Splits the rows over blocks by their number alone, so that the same batch is always summed in the same order.
ELMO_HOST_DEVICE constexpr int splits_of(int64_t rows) { return static_cast<int>(clamped<int64_t>(ceil_div(rows, 512), 1, kMaxSplits)); }
ELMO_HOST_DEVICE constexpr int64_t first_row(int64_t rows, int split, int splits) { return rows * split / splits; }

// Positions of a window are served in groups of two or three, as even as can be.
ELMO_HOST_DEVICE constexpr int groups_of(int width) { return static_cast<int>(ceil_div(width, kTaps)); }
ELMO_HOST_DEVICE constexpr int first_tap(int width, int group) { return width * group / groups_of(width); }

// Sets feature, column and unit of every width; a unit is 32 filters and one group of positions.
inline void lay_out(Params& p) {
  int32_t feature = 0, column = 0, unit = 0;
  for (int i = 0; i < p.widths; ++i) {
    Width& w = p.width[i];
    w.feature = feature, w.column = column, w.unit = unit;
    feature += w.filters;
    column += w.filters * w.width;
    unit += static_cast<int32_t>(ceil_div(w.filters, kLanes)) * groups_of(w.width);
  }
  p.features = feature, p.columns = column, p.units = unit;
  p.splits = splits_of(p.rows);
  p.tiles = static_cast<int32_t>(ceil_div(p.characters, kBins));
}

// Filter and window position of one thread of the first kernel; width < 0 for a thread without work.
struct Owned {
  int width, filter, tap;
};
ELMO_HOST_DEVICE inline Owned owned_by(const Params& p, int unit, int thread) {
  int i = 0;
  while (i + 1 < p.widths && p.width[i + 1].unit <= unit) ++i;
  const Width& w = p.width[i];
  const int groups = groups_of(w.width), group = (unit - w.unit) % groups;
  const int filter = (unit - w.unit) / groups * kLanes + thread % kLanes, tap = first_tap(w.width, group) + thread / kLanes;
  const bool owns = filter < w.filters && tap < first_tap(w.width, group + 1);
  return {owns ? i : -1, filter, tap};
}

// Columns lie width by width, position by position, filter by filter, so that a warp's are neighbours.
ELMO_HOST_DEVICE inline int64_t column_of(const Width& w, int filter, int tap) {
  return w.column + static_cast<int64_t>(tap) * w.filters + filter;
}
ELMO_HOST_DEVICE inline Owned owner_of(const Params& p, int64_t column) {
  int i = 0;
  while (i + 1 < p.widths && p.width[i + 1].column <= column) ++i;
  const int at = static_cast<int>(column - p.width[i].column);
  return {i, at % p.width[i].filters, at / p.width[i].filters};
}
ELMO_HOST_DEVICE inline int64_t weight_at(const Params& p, const Owned& o, int64_t e) {
  return (o.filter * p.size + e) * p.width[o.width].width + o.tap;
}

// The first kernel of char_cnn's backward: sums[character, (position, filter)] of the gradients of all features whose winning window has
// that character at that position. Everything else follows from them by two small products, so that a word costs an addition
// per position of a window and filter, 12,320 for ELMo, where multiplying by embeddings and weights costs 2 * 197,120 terms.
//
// A thread owns one column of bins and is alone in touching it: no barrier, no atomic, and the rows are added in their order.

constexpr int kAhead = 8;     // rows whose numbers are fetched together, two batches ahead of their additions
constexpr int kTogether = 2;  // additions whose bins are read together: a bin read after another was written would wait for it
static_assert(kAhead % kTogether == 0);

using Word __attribute__((may_alias)) = uint32_t;

// Properties of a block as compile-time constants, for few instructions per row: they bound the kernel.
template <bool is_tanh, bool is_tiled>
struct Kind {
  static constexpr bool tanh = is_tanh, tiled = is_tiled;  // tiled: more characters than bins
};

// Rows `row`.. of a thread's feature; 64-bit arithmetic once a batch, 32-bit strides within it.
struct Rows {
  const float *grad, *out;
  const int16_t* winners;
  const char* ids;  // of the thread's position in the window that starts at slot 0
  uint32_t features, slot_bytes, row_bytes, last;

  ELMO_HOST_DEVICE void advance(int64_t rows) {
    grad += rows * features, out += rows * features, winners += rows * features;
    ids += rows * row_bytes;
  }
};

// Numbers as they come from memory; no code reads them before the next batch has been asked for.
struct Values {
  float grad[kAhead], out[kAhead];
  uint32_t winner[kAhead];
};
struct Windows {
  float grad[kAhead];
  uint32_t id[kAhead];
};

// d feature / d maximum. A NaN passes, as in torch.
template <bool tanh>
ELMO_HOST_DEVICE float gradient_of(float grad, float out) {
  return tanh ? grad * (1.0f - out * out) : (out <= 0.0f ? 0.0f : grad);
}

// Rows from `count` on are not there and are not read.
template <bool checked>
ELMO_HOST_DEVICE Values fetch_values(const Rows& r, int64_t count) {
  Values v;
  ELMO_UNROLL
  for (uint32_t i = 0; i < kAhead; ++i) {
    const bool there = !checked || i < count;
    v.grad[i] = there ? r.grad[i * r.features] : 0.0f;
    v.out[i] = there ? r.out[i * r.features] : 0.0f;
    v.winner[i] = there ? static_cast<uint16_t>(r.winners[i * r.features]) : 0;
  }
  return v;
}

// Whatever a winner is, the window lies in the row. Of an id the low 32 bits are enough, as it is below 2^31 or else held within the table.
template <typename K, bool checked>
ELMO_HOST_DEVICE Windows fetch_ids(const Rows& r, const Values& v, int64_t count) {
  Windows f;
  ELMO_UNROLL
  for (uint32_t i = 0; i < kAhead; ++i) {
    const uint32_t start = v.winner[i] < r.last ? v.winner[i] : r.last;
    const auto* id = reinterpret_cast<const Word*>(r.ids + (i * r.row_bytes + start * r.slot_bytes));
    f.id[i] = !checked || i < count ? *id : 0;
    f.grad[i] = gradient_of<K::tanh>(v.grad[i], v.out[i]);
  }
  return f;
}

// Adds to the thread's bins; last: the last character. Characters of other tiles add nothing to the tile's first bin; a row that is not there has grad 0.
template <typename K>
ELMO_HOST_DEVICE void add(const Windows& f, uint32_t last, uint32_t first, uint32_t count, float* bins) {
  ELMO_UNROLL
  for (int i = 0; i < kAhead; i += kTogether) {
    float *bin[kTogether], sum[kTogether];
    ELMO_UNROLL
    for (int j = 0; j < kTogether; ++j) {
      const uint32_t id = f.id[i + j] < last ? f.id[i + j] : last, at = K::tiled ? id - first : id;
      const bool here = !K::tiled || at < count;
      bin[j] = bins + (here ? at : 0) * kThreads;
      sum[j] = *bin[j];
      ELMO_UNROLL
      for (int before = 0; before < j; ++before) sum[j] = bin[before] == bin[j] ? sum[before] : sum[j];
      sum[j] += here ? f.grad[i + j] : 0.0f;
    }
    ELMO_UNROLL
    for (int j = 0; j < kTogether; ++j) *bin[j] = sum[j];
  }
}

// The real number of rows: what the device counted, never more than there are.
ELMO_HOST_DEVICE inline int64_t rows_of(const Params& p) {
  return p.count == nullptr ? p.rows : clamped<int64_t>(*p.count, 0, p.rows);
}

ELMO_HOST_DEVICE inline Rows rows_from(const Params& p, const Owned& o, int64_t row) {
  const Width& w = p.width[o.width];
  const int64_t at = row * p.features + w.feature + o.filter;
  const uint32_t slot_bytes = p.wide_ids ? 8 : 4, row_bytes = static_cast<uint32_t>(p.slots) * slot_bytes;
  return {p.grad + at, p.out + at, p.winners + at, static_cast<const char*>(p.ids) + row * row_bytes + o.tap * slot_bytes,
          static_cast<uint32_t>(p.features), slot_bytes, row_bytes, static_cast<uint32_t>(p.slots - w.width)};
}

// Adds `left` rows: as long as three whole batches are there, nothing is checked.
template <typename K>
ELMO_HOST_DEVICE void add_rows(Rows at, int64_t left, uint32_t last, uint32_t first, uint32_t count, float* bins) {
  const auto next = [&] { at.advance(kAhead), left -= kAhead; };
  Values values = fetch_values<true>(at, left);
  Windows windows = fetch_ids<K, true>(at, values, left);
  next();
  values = fetch_values<true>(at, left);
  while (left >= 2 * kAhead) {  // `windows` is the batch before `at`, `values` the one at it
    const Windows now = windows;
    windows = fetch_ids<K, false>(at, values, left);
    next();
    values = fetch_values<false>(at, left);
    add<K>(now, last, first, count, bins);
  }
  while (left > -kAhead) {
    const Windows now = windows;
    windows = fetch_ids<K, true>(at, values, left);
    next();
    values = fetch_values<true>(at, left);
    add<K>(now, last, first, count, bins);
  }
}

// bins: [kBins][kThreads]; this thread uses column `thread` only.
template <typename K>
ELMO_HOST_DEVICE void sum_rows(const Params& p, int unit, int split, int tile, int thread, float* bins) {
  const Owned o = owned_by(p, unit, thread);
  if (o.width < 0) return;
  const int64_t first = static_cast<int64_t>(tile) * kBins, count = clamped<int64_t>(p.characters - first, 0, kBins), rows = rows_of(p);
  const int64_t begin = first_row(rows, split, p.splits), end = first_row(rows, split + 1, p.splits);
  bins += thread;
  for (int c = 0; c < count; ++c) bins[c * kThreads] = 0.0f;
  add_rows<K>(
      rows_from(p, o, begin), end - begin, static_cast<uint32_t>(p.characters - 1), static_cast<uint32_t>(first), static_cast<uint32_t>(count),
      bins);
  float* to = p.sums + (split * p.characters + first) * p.columns + column_of(p.width[o.width], o.filter, o.tap);
  for (int c = 0; c < count; ++c) to[c * p.columns] = bins[c * kThreads];
}

// From sums[character, column]  to the gradients:
//   d_weight[column, e] = sum over characters of sums[character, column] * embedding[character, e]
//   d_bias[filter]      = sum over characters of sums[character, column of the filter's first position]
//   d_embedding[character, e] = sum over columns of sums[character, column] * weight[column, e]
// All in float32 and in a fixed order. A sum that is exactly 0 multiplies nothing: a NaN in the embedding of a character that no winning
// window holds stays out of the weights' gradients.

// Operands rounded and arranged: element i of table, then of filters.
ELMO_HOST_DEVICE inline int64_t arranged_count(const Params& p) {
  return p.vectors() * kVector * (p.characters + p.columns);
}
ELMO_HOST_DEVICE inline void arrange(const Params& p, int64_t i) {
  const int64_t padded = p.vectors() * kVector, in_table = p.characters * padded;
  if (i < in_table) {
    const int64_t character = i / padded, e = i % padded;
    p.table[i] = e < p.size ? rounded_to(p.embedding[character * p.size + e], p.rounding) : 0.0f;
    return;
  }
  const int64_t e = (i - in_table) / p.columns, column = (i - in_table) % p.columns;
  const Owned o = owner_of(p, column);
  p.filters[i - in_table] = e < p.size ? rounded_to(p.width[o.width].weight[weight_at(p, o, e)], p.rounding) : 0.0f;
}

// The second kernel: 32 columns a block, the characters in 8 slices. Also leaves the sum over the splits in the first of them.
constexpr int kSlices = 8;
constexpr int kWeightThreads = kLanes * kSlices;
struct WeightScratch {
  float part[kSlices][kVector + 1][kLanes];  // the last one is the bias
};
struct WeightLane {
  float sum[kVector + 1];
};
static_assert(sizeof(WeightScratch) <= 48 * 1024, "static shared memory");

ELMO_HOST_DEVICE constexpr int64_t first_character(int64_t characters, int slice) { return characters * slice / kSlices; }

// Sums over the splits the first time, and leaves the result where the other times find it.
ELMO_HOST_DEVICE inline float sum_at(const Params& p, int64_t character, int64_t column, bool first_time) {
  float* at = p.sums + character * p.columns + column;
  float sum = *at;
  if (first_time && p.splits > 1) {
    for (int split = 1; split < p.splits; ++split) sum += at[split * p.characters * p.columns];
    *at = sum;
  }
  return sum;
}

ELMO_HOST_DEVICE inline void multiply_slice(const Params& p, int64_t column, int slice, int64_t vector, float* sum) {
  const int64_t padded = p.vectors() * kVector;
  ELMO_UNROLL
  for (int e = 0; e <= kVector; ++e) sum[e] = 0.0f;
  if (column >= p.columns) return;
  for (int64_t c = first_character(p.characters, slice); c < first_character(p.characters, slice + 1); ++c) {
    const float value = sum_at(p, c, column, vector == 0);
    if (value == 0.0f) continue;
    const float* embedded = p.table + c * padded + vector * kVector;
    ELMO_UNROLL
    for (int e = 0; e < kVector; ++e) sum[e] += value * embedded[e];
    sum[kVector] += value;
  }
}

template <typename Block>
ELMO_HOST_DEVICE void weight_gradients(Block& block, const Params& p, int64_t block_index, WeightScratch& s) {
  for (int64_t vector = 0; vector < p.vectors(); ++vector) {
    block.each([&](int t, WeightLane& lane) {
      multiply_slice(p, block_index * kLanes + t % kLanes, t / kLanes, vector, lane.sum);
      ELMO_UNROLL
      for (int e = 0; e <= kVector; ++e) s.part[t / kLanes][e][t % kLanes] = lane.sum[e];
    });
    block.each([&](int t, WeightLane&) {
      const int64_t column = block_index * kLanes + t % kLanes;
      if (!p.need_weights || column >= p.columns) return;
      const Owned o = owner_of(p, column);
      for (int i = t / kLanes; i <= kVector; i += kSlices) {
        float sum = s.part[0][i][t % kLanes];
        for (int slice = 1; slice < kSlices; ++slice) sum += s.part[slice][i][t % kLanes];
        const int64_t e = vector * kVector + i;
        if (i < kVector && e < p.size) p.width[o.width].d_weight[weight_at(p, o, e)] = sum;
        if (i == kVector && vector == 0 && o.tap == 0) p.width[o.width].d_bias[o.filter] = sum;
      }
    });
  }
}

// The third kernel: 4 characters a block, which walks over all columns; then the threads' sums are added in a fixed order.
constexpr int kCharacters = 4;
constexpr int kEmbeddingThreads = 256;
constexpr int kParts = kEmbeddingThreads / kVector;
struct EmbeddingScratch {
  float sum[kVector][kEmbeddingThreads + 1];
  float part[kVector][kParts];
};
struct EmbeddingLane {
  float sum[kCharacters][kVector];
};
static_assert(kParts * kVector == kEmbeddingThreads && sizeof(EmbeddingScratch) <= 48 * 1024);

ELMO_HOST_DEVICE inline void multiply_columns(const Params& p, int64_t first, int64_t vector, int thread, EmbeddingLane& lane) {
  ELMO_UNROLL
  for (int c = 0; c < kCharacters; ++c)
    ELMO_UNROLL
    for (int e = 0; e < kVector; ++e) lane.sum[c][e] = 0.0f;
  for (int64_t column = thread; column < p.columns; column += kEmbeddingThreads) {
    float weight[kVector];
    ELMO_UNROLL
    for (int e = 0; e < kVector; ++e) weight[e] = p.filters[(vector * kVector + e) * p.columns + column];
    ELMO_UNROLL
    for (int c = 0; c < kCharacters; ++c) {
      const float value = first + c < p.characters ? p.sums[(first + c) * p.columns + column] : 0.0f;
      if (value == 0.0f) continue;
      ELMO_UNROLL
      for (int e = 0; e < kVector; ++e) lane.sum[c][e] += value * weight[e];
    }
  }
}

ELMO_HOST_DEVICE inline void share_sums(const EmbeddingLane& lane, int character, int thread, EmbeddingScratch& s) {
  ELMO_UNROLL
  for (int e = 0; e < kVector; ++e) s.sum[e][thread] = lane.sum[character][e];
}

// A character's parts are read in the phase that shares the next one's sums: other memory, so no barrier lies between.
template <typename Block>
ELMO_HOST_DEVICE void embedding_gradients(Block& block, const Params& p, int64_t first, int64_t vector, EmbeddingScratch& s) {
  block.each([&](int t, EmbeddingLane& lane) {
    multiply_columns(p, first, vector, t, lane);
    share_sums(lane, 0, t, s);
  });
  ELMO_UNROLL
  for (int c = 0; c < kCharacters; ++c) {
    block.each([&](int t, EmbeddingLane&) {
      const int e = t / kParts, part = t % kParts;
      float sum = 0.0f;
      for (int i = 0; i < kVector; ++i) sum += s.sum[e][part * kVector + i];
      s.part[e][part] = sum;
    });
    block.each([&](int t, EmbeddingLane& lane) {
      if (c + 1 < kCharacters) share_sums(lane, c + 1, t, s);
      const int64_t e = vector * kVector + t;
      if (t >= kVector || e >= p.size || first + c >= p.characters) return;
      float sum = 0.0f;
      for (int part = 0; part < kParts; ++part) sum += s.part[t][part];
      p.d_embedding[(first + c) * p.size + e] = sum;
    });
  }
}

}  // namespace elmo_fast::char_cnn
