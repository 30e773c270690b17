// How a product of N rows with the whole table is cut, so that its logits stay within a bound.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/checks.h"

namespace elmo_fast::full_softmax {

constexpr int64_t kRows = 1024;

// Raises unless these are hidden [N, D], targets [N], a table [V, D] of at least a word, its bias, and a bound above 0.
inline void check_table(
    const Arguments& check, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias,
    int64_t chunk_bytes) {
  check.floating("hidden", hidden, {kAny, kAny});
  check.tensor("targets", targets, kLong, {hidden.size(0)});
  check.tensor("weight", weight, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.tensor("bias", bias, hidden.scalar_type(), {weight.size(0)});
  check.need(weight.size(0) > 0, "weight must hold at least one word; got none");
  check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
  check.ids("targets", targets, weight.size(0));
}

struct Blocks {
  Blocks(int64_t count, int64_t all, int64_t item_bytes, int64_t chunk_bytes)
      : rows(std::clamp<int64_t>(std::min(count, chunk_bytes / item_bytes), 1, kRows)),
        words(std::clamp<int64_t>(chunk_bytes / (item_bytes * rows), 1, all)) {}
  int64_t rows, words;
};

}  // namespace elmo_fast::full_softmax
