// The first kernel of char_cnn's backward: sums[character, (position, filter)] of the gradients of all features whose winning window has
// that character at that position. Everything else follows from them by two small products (gradients.h), so that a word costs an addition
// per position of a window and filter, 12,320 for ELMo, where multiplying by embeddings and weights costs 2 * 197,120 terms.
//
// A thread owns one column of bins and is alone in touching it: no barrier, no atomic, and the rows are added in their order.
#pragma once

#include "char_cnn/maps.h"

namespace elmo_fast::char_cnn {

constexpr int kAhead = 8;     // rows whose numbers are fetched together, two batches ahead of their additions
constexpr int kTogether = 4;  // additions whose bins are read together: a bin read after another was written would wait for it

// Numbers as they come from memory; nothing looks at them before the next batch has been asked for.
struct Values {
  float grad[kAhead], out[kAhead];
  int16_t winner[kAhead];
};
template <typename Id>
struct Found {
  float grad[kAhead];
  Id id[kAhead];
};

// d feature / d maximum. A NaN passes, as in torch.
ELMO_HOST_DEVICE inline float gradient_of(float grad, float out, bool tanh) {
  return tanh ? grad * (1.0f - out * out) : (out <= 0.0f ? 0.0f : grad);
}

ELMO_HOST_DEVICE inline Values fetch_values(const Params& p, int64_t feature, int64_t row, int64_t end) {
  Values v;
  ELMO_UNROLL
  for (int i = 0; i < kAhead; ++i) {
    const bool there = row + i < end;
    const int64_t at = (row + i) * p.features + feature;
    v.grad[i] = there ? p.grad[at] : 0.0f;
    v.out[i] = there ? p.out[at] : 0.0f;
    v.winner[i] = there ? p.winners[at] : int16_t{0};
  }
  return v;
}

// last: the last window. Whatever a winner is, the window lies in the row.
template <typename Id>
ELMO_HOST_DEVICE Found<Id> fetch_ids(const Params& p, const Values& v, int tap, int64_t last, int64_t row, int64_t end) {
  Found<Id> f;
  ELMO_UNROLL
  for (int i = 0; i < kAhead; ++i) {
    const int64_t start = clamped<int64_t>(v.winner[i], 0, last);
    f.id[i] = row + i < end ? static_cast<const Id*>(p.ids)[(row + i) * p.slots + start + tap] : Id{0};
    f.grad[i] = gradient_of(v.grad[i], v.out[i], p.tanh);
  }
  return f;
}

// Adds to the thread's bins. Characters of other tiles add nothing to the tile's first bin.
template <typename Id>
ELMO_HOST_DEVICE void add(const Params& p, const Found<Id>& f, int64_t first, int64_t count, float* bins) {
  ELMO_UNROLL
  for (int i = 0; i < kAhead; i += kTogether) {
    float *bin[kTogether], sum[kTogether];
    ELMO_UNROLL
    for (int j = 0; j < kTogether; ++j) {
      const int64_t at = clamped<int64_t>(f.id[i + j], 0, p.characters - 1) - first;
      const bool here = at >= 0 && at < count;
      bin[j] = bins + (here ? static_cast<int>(at) : 0) * kThreads;
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

// bins: [kBins][kThreads], of which this thread touches column `thread`.
template <typename Id>
ELMO_HOST_DEVICE void sum_rows(const Params& p, int unit, int split, int tile, int thread, float* bins) {
  const Owned o = owned_by(p, unit, thread);
  if (o.width < 0) return;
  const Width& w = p.width[o.width];
  const int64_t first = static_cast<int64_t>(tile) * kBins, count = clamped<int64_t>(p.characters - first, 0, kBins);
  const int64_t last = p.slots - w.width, feature = w.feature + o.filter, rows = rows_of(p);
  const int64_t begin = first_row(rows, split, p.splits), end = first_row(rows, split + 1, p.splits);
  bins += thread;
  for (int c = 0; c < count; ++c) bins[c * kThreads] = 0.0f;
  Values values = fetch_values(p, feature, begin, end);
  Found<Id> found = fetch_ids<Id>(p, values, o.tap, last, begin, end);
  values = fetch_values(p, feature, begin + kAhead, end);
  for (int64_t row = begin; row < end; row += kAhead) {
    const Found<Id> now = found;
    found = fetch_ids<Id>(p, values, o.tap, last, row + kAhead, end);
    values = fetch_values(p, feature, row + 2 * kAhead, end);
    add(p, now, first, count, bins);
  }
  float* to = p.sums + (split * p.characters + first) * p.columns + column_of(w, o.filter, o.tap);
  for (int c = 0; c < count; ++c) to[c * p.columns] = bins[c * kThreads];
}

}  // namespace elmo_fast::char_cnn
