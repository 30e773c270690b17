// How a product of N rows with the whole table is cut, so that its logits stay within a bound.
#pragma once

#include <algorithm>
#include <cstdint>

namespace elmo_fast::full_softmax {

constexpr int64_t kRows = 1024;

struct Blocks {
  Blocks(int64_t count, int64_t all, int64_t item_bytes, int64_t chunk_bytes)
      : rows(std::clamp<int64_t>(std::min(count, chunk_bytes / item_bytes), 1, kRows)),
        words(std::clamp<int64_t>(chunk_bytes / (item_bytes * rows), 1, all)) {}
  int64_t rows, words;
};

}  // namespace elmo_fast::full_softmax
