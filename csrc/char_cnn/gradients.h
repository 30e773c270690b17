// From sums[character, column] (sums.h) to the gradients:
//   d_weight[column, e] = sum over characters of sums[character, column] * embedding[character, e]
//   d_bias[filter]      = sum over characters of sums[character, column of the filter's first position]
//   d_embedding[character, e] = sum over columns of sums[character, column] * weight[column, e]
// All in float32 and in a fixed order. A sum that is exactly 0 multiplies nothing: a NaN in the embedding of a character that no winning
// window holds stays out of the weights' gradients.
#pragma once

#include "char_cnn/maps.h"

namespace elmo_fast::char_cnn {

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
