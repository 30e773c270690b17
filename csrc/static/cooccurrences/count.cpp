// count_cooccurrences: pairs of words within a window. Those of frequent words are added to a table, the corner; the others are written
// down, sorted and added up. All sums are of whole numbers, so that no order of adding changes them.

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "common/checks.h"
#include "common/parallel.h"
#include "static/cooccurrences/pairs.h"

namespace elmo_fast {
namespace {

constexpr int32_t kBoundary = -1;                    // of the table of words; what is below is left out
constexpr int kDistanceBits = 8, kDigitBits = 11;    // a record is a key above a distance
constexpr int64_t kDigits = int64_t{1} << kDigitBits;

struct Count {
  const int32_t *numbers, *table;
  int64_t table_size;
  const int64_t* weights;  // of distance 1, 2, ..., window
  const Corner& corner;
  int64_t window;
  int bits;
  bool symmetric;
};

// The last words before a place, newest first, up to a boundary.
class History {
 public:
  explicit History(int64_t window) : words_(2 * window), window_(window), at_(window) {}
  void clear() { size_ = 0; }
  void push(int32_t word) {
    if (at_ == 0) {
      std::copy_n(words_.begin(), window_, words_.begin() + window_);
      at_ = window_;
    }
    words_[--at_] = word;
    size_ = std::min(size_ + 1, window_);
  }
  const int32_t* words() const { return words_.data() + at_; }
  int64_t size() const { return size_; }

 private:
  std::vector<int32_t> words_;
  int64_t window_, at_, size_ = 0;
};

History history_before(const Count& c, int64_t at) {
  std::vector<int32_t> found;
  while (at > 0 && static_cast<int64_t>(found.size()) < c.window) {
    const int32_t number = c.numbers[--at];
    ELMO_CHECK_INDEX(number >= 0 && number < c.table_size, "count_cooccurrences: number ", number, " of a table of ", c.table_size);
    const int32_t word = c.table[number];
    if (word == kBoundary) break;
    if (word >= 0) found.push_back(word);
  }
  History history(c.window);
  for (auto word = found.rbegin(); word != found.rend(); ++word) history.push(*word);
  return history;
}

// Counts the pairs whose second word stands in [begin, end); their first may stand before.
void count_range(const Count& c, int64_t begin, int64_t end, int64_t* cells, std::vector<uint64_t>& records) {
  History history = history_before(c, begin);
  const int shift = c.bits + kDistanceBits;
  for (int64_t at = begin; at < end; ++at) {
    const int32_t word = c.table[c.numbers[at]];
    if (word < 0) {
      if (word == kBoundary) history.clear();
      continue;
    }
    const int32_t* const before = history.words();
    for (int64_t k = 0; k < history.size(); ++k) {
      const int64_t row = c.symmetric ? std::min(word, before[k]) : word, column = c.symmetric ? std::max(word, before[k]) : before[k];
      if (column < c.corner.end(row))
        cells[c.corner.place(row, column)] += c.weights[k];
      else
        records.push_back(static_cast<uint64_t>(row) << shift | static_cast<uint64_t>(column) << kDistanceBits | static_cast<uint64_t>(k));
    }
    history.push(word);
  }
}

// Sorts by key, digit after digit from the last.
void sort_records(std::vector<uint64_t>& records, int bits) {
  std::vector<uint64_t> other(records.size());
  for (int shift = kDistanceBits; shift < 2 * bits + kDistanceBits; shift += kDigitBits) {
    std::array<int64_t, kDigits> place{};
    for (const uint64_t record : records) ++place[record >> shift & (kDigits - 1)];
    int64_t at = 0;
    for (int64_t& each : place) at += std::exchange(each, at);
    for (const uint64_t record : records) other[place[record >> shift & (kDigits - 1)]++] = record;
    records.swap(other);
  }
}

// One key and one sum for all records of a key.
std::pair<Tensor, Tensor> run_of(const std::vector<uint64_t>& records, const int64_t* weights) {
  int64_t keys = 0;
  for (size_t r = 0; r < records.size(); ++r) keys += r == 0 || records[r] >> kDistanceBits != records[r - 1] >> kDistanceBits;
  const auto options = Options{kLong};
  Tensor key = empty({keys}, options), sum = empty({keys}, options);
  auto *key_at = key.mutable_data_ptr<int64_t>(), *sum_at = sum.mutable_data_ptr<int64_t>();
  for (size_t r = 0; r < records.size();) {
    const uint64_t mine = records[r] >> kDistanceBits;
    int64_t total = 0;
    for (; r < records.size() && records[r] >> kDistanceBits == mine; ++r) total += weights[records[r] & ((1u << kDistanceBits) - 1)];
    *key_at++ = static_cast<int64_t>(mine);
    *sum_at++ = total;
  }
  return {key, sum};
}

void check(
    const Tensor& numbers, int64_t begin, int64_t end, const Tensor& table, const Tensor& weights, int64_t num_words,
    const Corner& places, const Tensor& corner) {
  const Arguments check("count_cooccurrences");
  check.tensor("numbers", numbers, kInt, {kAny});
  check.tensor("table", table, kInt, {kAny});
  check.tensor("weights", weights, kLong, {kAny});
  check.tensor("corner", corner, kLong, {kAny, places.cells()});
  for (const Tensor& each : {numbers, table, weights, corner}) check.contiguous("numbers, table, weights and corner", each);
  check.need(begin >= 0 && begin <= end && end <= numbers.numel(), "begin and end must lie within numbers; got ", begin, " and ", end);
  check.need(weights.numel() > 0 && weights.numel() < 1 << kDistanceBits, "weights must be 1 to 255; got ", weights.numel());
  check.need(num_words > 0 && num_words < 1 << 27, "num_words must be from 1 to 2^27 - 1; got ", num_words);
  check.ids("numbers", numbers.narrow(0, begin, end - begin), table.numel());
  const auto* word = table.const_data_ptr<int32_t>();
  check.need(std::all_of(word, word + table.numel(), [&](int32_t each) { return each < num_words; }), "table must hold words below num_words = ", num_words);
}

int64_t corner_cells(int64_t num_words, int64_t product, bool symmetric) {
  return Corner(num_words, product, symmetric).cells();
}

std::tuple<std::vector<Tensor>, std::vector<Tensor>> count_cooccurrences(
    const Tensor& numbers, int64_t begin, int64_t end, const Tensor& table, const Tensor& weights, int64_t num_words,
    int64_t product, bool symmetric, Tensor& corner) {
  const Corner places(num_words, product, symmetric);
  check(numbers, begin, end, table, weights, num_words, places, corner);
  const Count c{numbers.const_data_ptr<int32_t>(), table.const_data_ptr<int32_t>(), table.numel(), weights.const_data_ptr<int64_t>(),
                places, weights.numel(), bits_of(num_words), symmetric};
  const int64_t threads = corner.size(0);
  auto* const cells = corner.mutable_data_ptr<int64_t>();
  std::vector<Tensor> keys(threads), sums(threads);
  parallel_for(threads, 1, [&](int64_t from, int64_t to) {
    for (int64_t t = from; t < to; ++t) {
      std::vector<uint64_t> records;
      const int64_t first = begin + (end - begin) * t / threads, last = begin + (end - begin) * (t + 1) / threads;
      count_range(c, first, last, cells + t * places.cells(), records);
      sort_records(records, c.bits);
      std::tie(keys[t], sums[t]) = run_of(records, c.weights);
    }
  });
  return {keys, sums};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CompositeExplicitAutograd, m) { m.impl("cooccurrence_corner_cells", ELMO_BOX(corner_cells)); }
STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("count_cooccurrences", ELMO_BOX(count_cooccurrences)); }

}  // namespace elmo_fast
