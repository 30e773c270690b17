// The first kernel of char_cnn's backward: sums[character, (position, filter)] of the gradients of all features whose winning window has
// that character at that position. Everything else follows from them by two small products (gradients.h), so that a word costs an addition
// per position of a window and filter, 12,320 for ELMo, where multiplying by embeddings and weights costs 2 * 197,120 terms.
//
// A thread owns one column of bins and is alone in touching it: no barrier, no atomic, and the rows are added in their order.
#pragma once

#include "char_cnn/maps.h"

namespace elmo_fast::char_cnn {

constexpr int kAhead = 8;     // rows whose numbers are fetched together, two batches ahead of their additions
constexpr int kTogether = 2;  // additions whose bins are read together: a bin read after another was written would wait for it
static_assert(kAhead % kTogether == 0);

using Word __attribute__((may_alias)) = uint32_t;

// What a block does, as the compiler must know it for few instructions a row: they bound the kernel.
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

// Numbers as they come from memory; nothing looks at them before the next batch has been asked for.
struct Values {
  float grad[kAhead], out[kAhead];
  uint32_t winner[kAhead];
};
struct Found {
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
ELMO_HOST_DEVICE Found fetch_ids(const Rows& r, const Values& v, int64_t count) {
  Found f;
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
ELMO_HOST_DEVICE void add(const Found& f, uint32_t last, uint32_t first, uint32_t count, float* bins) {
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
  Found found = fetch_ids<K, true>(at, values, left);
  next();
  values = fetch_values<true>(at, left);
  while (left >= 2 * kAhead) {  // `found` is the batch before `at`, `values` the one at it
    const Found now = found;
    found = fetch_ids<K, false>(at, values, left);
    next();
    values = fetch_values<false>(at, left);
    add<K>(now, last, first, count, bins);
  }
  while (left > -kAhead) {
    const Found now = found;
    found = fetch_ids<K, true>(at, values, left);
    next();
    values = fetch_values<true>(at, left);
    add<K>(now, last, first, count, bins);
  }
}

// bins: [kBins][kThreads], of which this thread touches column `thread`.
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

}  // namespace elmo_fast::char_cnn
