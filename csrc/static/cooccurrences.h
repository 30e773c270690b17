// Counting how often words occur near each other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace elmo_fast {

// The corner of frequent words, cells (row, column) with (row + 1)(column + 1) <= product, laid row after row. Of a symmetric matrix the
// columns from the row on. Rows end at a bound: of a thousand times rarer words there would be many, with few cells each.
class Corner {
 public:
  Corner(int64_t num_words, int64_t product, bool symmetric);
  // Returns the corner of the largest product that has at most `most_cells` cells.
  static Corner fitting(int64_t num_words, bool symmetric, int64_t most_cells);
  int64_t rows() const { return static_cast<int64_t>(ends_.size()); }
  int64_t cells() const { return cells_; }
  int64_t begin(int64_t row) const { return begins_[row]; }
  int64_t end(int64_t row) const { return row < rows() ? ends_[row] : 0; }
  int64_t place(int64_t row, int64_t column) const { return places_[row] + column; }

 private:
  std::vector<int64_t> places_, begins_, ends_;
  int64_t cells_ = 0;
};

// Sorted keys, a row above a column each, and their sums.
struct Run {
  int64_t size;
  std::unique_ptr<int64_t[]> keys, sums;
};
struct RunView {
  std::span<const int64_t> keys, sums;
};

// The cells that are not 0, by row and column.
struct Entries {
  int64_t size;
  std::unique_ptr<int32_t[]> rows, columns;
  std::unique_ptr<float[]> values;
};

// Pairs of frequent words are added to a table, the corner, of one copy for each thread; the others are written down, sorted and added up to
// a run. All sums are of whole numbers, so that no order of adding changes them.
class CooccurrenceCounter {
 public:
  // table: the word of each number, below 0 none; weights: of the distances 1, 2, ..., window.
  CooccurrenceCounter(
      std::span<const int32_t> table, std::span<const int64_t> weights, int64_t num_words, bool symmetric, int64_t most_cells, int64_t threads);
  // Counts the pairs whose second word stands in [begin, end) of `numbers`; their first may stand before.
  std::vector<Run> count(std::span<const int32_t> numbers, int64_t begin, int64_t end);
  // The corner and the runs as one list; sums are divided by `scale`.
  Entries merge(std::vector<RunView> runs, int64_t scale) const;

 private:
  int32_t word_of(int32_t number) const;
  void count_range(std::span<const int32_t> numbers, int64_t begin, int64_t end, int64_t* cells, std::vector<uint64_t>& records) const;
  template <typename Visit>
  void each(std::vector<RunView> runs, const Visit& visit) const;

  const std::vector<int32_t> table_;
  const std::vector<int64_t> weights_;
  const int64_t num_words_, threads_;
  const bool symmetric_;
  const int bits_;  // of a row or a column in a key
  const Corner corner_;
  std::vector<int64_t> counted_;  // [threads, cells]
};

}  // namespace elmo_fast
