// merge_cooccurrences: the corner and the runs become one list of entries, by row and column. Everything is gone through twice: once to
// know how many entries a row has, once to write them.

#include <algorithm>
#include <vector>

#include "common/checks.h"
#include "static/cooccurrences/pairs.h"

namespace elmo_fast {
namespace {

// What is left of a run.
struct Rest {
  const int64_t *key, *sum, *end;
};

struct Counted {
  std::vector<Rest> runs;
  const int64_t* corner;
  int64_t copies, num_words;
  Corner places;
  int bits;
};

bool later(const Rest& a, const Rest& b) { return *a.key > *b.key; }

// Calls visit(row, column, sum) for every cell that is not 0, by row and column. In a row the columns of the corner come first.
template <typename Visit>
void each(const Counted& counted, const Visit& visit) {
  std::vector<Rest> heap;
  for (const Rest& run : counted.runs)
    if (run.key != run.end) heap.push_back(run);
  std::make_heap(heap.begin(), heap.end(), later);
  const int64_t mask = (int64_t{1} << counted.bits) - 1;
  for (int64_t row = 0; row < counted.num_words; ++row) {
    if (row >= counted.places.rows() && heap.empty()) return;
    for (int64_t column = row < counted.places.rows() ? counted.places.begin(row) : 0; column < counted.places.end(row); ++column) {
      int64_t sum = 0;
      for (int64_t copy = 0; copy < counted.copies; ++copy)
        sum += counted.corner[copy * counted.places.cells() + counted.places.place(row, column)];
      if (sum != 0) visit(row, column, sum);
    }
    while (!heap.empty() && *heap.front().key >> counted.bits == row) {
      const int64_t key = *heap.front().key;
      int64_t sum = 0;
      while (!heap.empty() && *heap.front().key == key) {
        std::pop_heap(heap.begin(), heap.end(), later);
        Rest& run = heap.back();
        sum += *run.sum++;
        if (++run.key == run.end)
          heap.pop_back();
        else
          std::push_heap(heap.begin(), heap.end(), later);
      }
      ELMO_CHECK_INDEX((key & mask) < counted.num_words, "merge_cooccurrences: column ", key & mask, " of ", counted.num_words, " words");
      visit(row, key & mask, sum);
    }
  }
}

void check(TensorList keys, TensorList sums, const Tensor& corner, const Corner& places, int64_t num_words) {
  const Arguments check("merge_cooccurrences");
  check.need(num_words > 0 && num_words < 1 << 27, "num_words must be from 1 to 2^27 - 1; got ", num_words);
  check.tensor("corner", corner, kLong, {kAny, places.cells()});
  check.contiguous("corner", corner);
  check.need(keys.size() == sums.size(), "keys and sums must be as many; got ", keys.size(), " and ", sums.size());
  for (size_t r = 0; r < keys.size(); ++r) {
    check.tensor("keys", keys[r], kLong, {kAny});
    check.tensor("sums", sums[r], kLong, keys[r].sizes());
    check.contiguous("keys", keys[r]);
    check.contiguous("sums", sums[r]);
  }
}

Counted counted_of(TensorList keys, TensorList sums, const Tensor& corner, int64_t num_words, int64_t product, bool symmetric) {
  const Corner places(num_words, product, symmetric);
  check(keys, sums, corner, places, num_words);
  Counted counted{{}, corner.const_data_ptr<int64_t>(), corner.size(0), num_words, places, bits_of(num_words)};
  for (size_t r = 0; r < keys.size(); ++r) {
    const auto* key = keys[r].const_data_ptr<int64_t>();
    counted.runs.push_back({key, sums[r].const_data_ptr<int64_t>(), key + keys[r].numel()});
  }
  return counted;
}

// How many entries each row has: [2, V], those from the diagonal on as they were counted, and those below it that mirror others.
Tensor cooccurrence_row_sizes(
    TensorList keys, TensorList sums, const Tensor& corner, int64_t num_words, int64_t product, bool symmetric) {
  Tensor sizes = zeros({2, num_words}, Options{kLong});
  auto* size = sizes.mutable_data_ptr<int64_t>();
  each(counted_of(keys, sums, corner, num_words, product, symmetric), [&](int64_t row, int64_t column, int64_t) {
    ++size[row];
    if (symmetric && row != column) ++size[num_words + column];
  });
  return sizes;
}

void merge_cooccurrences(
    TensorList keys, TensorList sums, const Tensor& corner, const Tensor& sizes, int64_t product, bool symmetric,
    int64_t scale, Tensor& rows, Tensor& columns, Tensor& values) {
  const Arguments check("merge_cooccurrences");
  check.tensor("sizes", sizes, kLong, {2, kAny});
  check.tensor("rows", rows, kInt, {kAny});
  check.tensor("columns", columns, kInt, rows.sizes());
  check.tensor("values", values, kFloat, rows.sizes());
  for (const Tensor& each : {sizes, rows, columns, values}) check.contiguous("sizes, rows, columns and values", each);
  const int64_t num_words = sizes.size(1);
  const auto* size = sizes.const_data_ptr<int64_t>();
  std::vector<int64_t> direct(num_words), mirrored(num_words);
  int64_t at = 0;
  for (int64_t row = 0; row < num_words; ++row) {
    mirrored[row] = at;
    direct[row] = at += size[num_words + row];
    at += size[row];
  }
  check.need(rows.numel() == at, "rows must have room for ", at, " entries; got ", rows.numel());
  auto *row_at = rows.mutable_data_ptr<int32_t>(), *column_at = columns.mutable_data_ptr<int32_t>();
  auto* value_at = values.mutable_data_ptr<float>();
  const auto put = [&](int64_t place, int64_t row, int64_t column, float value) {
    check.need(place >= 0 && place < at, "sizes are not those of these entries");
    row_at[place] = static_cast<int32_t>(row);
    column_at[place] = static_cast<int32_t>(column);
    value_at[place] = value;
  };
  each(counted_of(keys, sums, corner, num_words, product, symmetric), [&](int64_t row, int64_t column, int64_t sum) {
    const bool both = symmetric && row == column;  // a pair of equal words counts from either of them
    const auto value = static_cast<float>(static_cast<double>(both ? 2 * sum : sum) / static_cast<double>(scale));
    put(direct[row]++, row, column, value);
    if (symmetric && row != column) put(mirrored[column]++, column, row, value);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("cooccurrence_row_sizes", ELMO_BOX(cooccurrence_row_sizes));
  m.impl("merge_cooccurrences", ELMO_BOX(merge_cooccurrences));
}

}  // namespace elmo_fast
