// What counting and merging share: keys, the corner's places, and the whole numbers in which weights are added.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace elmo_fast {

// A key is a row above a column, of as many bits as the vocabulary needs.
inline int bits_of(int64_t num_words) {
  int bits = 1;
  while ((num_words - 1) >> bits) ++bits;
  return bits;
}

// The corner of frequent words, cells (row, column) with (row + 1)(column + 1) <= product, laid row after row. Of a symmetric matrix the
// columns from the row on. Rows end at a bound: of a thousand times rarer words there would be many, with few cells each.
class Corner {
 public:
  Corner(int64_t num_words, int64_t product, bool symmetric) {
    int64_t at = 0;
    for (int64_t row = 0; row < std::min(num_words, kMostRows); ++row) {
      const int64_t begin = symmetric ? row : 0, end = std::min(num_words, product / (row + 1));
      if (end <= begin) break;
      // The place of column 0, so that a cell is at place + column.
      places_.push_back(at - begin);
      begins_.push_back(begin);
      ends_.push_back(end);
      at += end - begin;
    }
    cells_ = at;
  }
  int64_t rows() const { return static_cast<int64_t>(ends_.size()); }
  int64_t cells() const { return cells_; }
  int64_t begin(int64_t row) const { return begins_[row]; }
  int64_t end(int64_t row) const { return row < rows() ? ends_[row] : 0; }
  int64_t place(int64_t row, int64_t column) const { return places_[row] + column; }

 private:
  static constexpr int64_t kMostRows = int64_t{1} << 16;
  std::vector<int64_t> places_, begins_, ends_;
  int64_t cells_ = 0;
};

}  // namespace elmo_fast
