// Who does what in the backward pass of char_cnn on a GPU: index maps alone, each of them held to cover everything exactly once by
// tests/csrc/backward.cpp.
#pragma once

#include "common/host_device.h"
#include "common/rounding.h"

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

// How the rows are split over blocks: by their number alone, so that the same batch is always summed in the same order.
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

// What one thread of the first kernel owns: a filter and a position of its window; width < 0 where it owns nothing.
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

}  // namespace elmo_fast::char_cnn
