#include "static/cooccurrences.h"

#include <algorithm>
#include <utility>

#include "common/parallel.h"
#include "common/radix_sort.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

constexpr int32_t kBoundary = -1;  // of the table of words; what is below is left out
constexpr int kDistanceBits = 8;    // a record is a key above a distance

// A key is a row above a column, of as many bits as the vocabulary needs.
int bits_of(int64_t num_words) {
  ELMO_CHECK_VALUE(num_words > 0 && num_words < 1 << 27, "num_words must be from 1 to 2^27 - 1; got ", num_words);
  int bits = 1;
  while ((num_words - 1) >> bits) ++bits;
  return bits;
}

// One key and one sum for all records of a key.
Run run_of(const std::vector<uint64_t>& records, std::span<const int64_t> weights) {
  int64_t keys = 0;
  for (size_t r = 0; r < records.size(); ++r) keys += r == 0 || records[r] >> kDistanceBits != records[r - 1] >> kDistanceBits;
  Run run{keys, std::make_unique_for_overwrite<int64_t[]>(keys), std::make_unique_for_overwrite<int64_t[]>(keys)};
  int64_t at = 0;
  for (size_t r = 0; r < records.size(); ++at) {
    const uint64_t key = records[r] >> kDistanceBits;
    int64_t total = 0;
    for (; r < records.size() && records[r] >> kDistanceBits == key; ++r) total += weights[records[r] & ((1u << kDistanceBits) - 1)];
    run.keys[at] = static_cast<int64_t>(key);
    run.sums[at] = total;
  }
  return run;
}

bool later(const RunView& a, const RunView& b) { return a.keys.front() > b.keys.front(); }

}  // namespace

Corner::Corner(int64_t num_words, int64_t product, bool symmetric) {
  constexpr int64_t kMostRows = int64_t{1} << 16;
  int64_t at = 0;
  for (int64_t row = 0; row < std::min(num_words, kMostRows); ++row) {
    const int64_t begin = symmetric ? row : 0, end = std::min(num_words, product / (row + 1));
    if (end <= begin) break;
    places_.push_back(at - begin);  // index of column 0, so that a cell has index place + column
    begins_.push_back(begin);
    ends_.push_back(end);
    at += end - begin;
  }
  cells_ = at;
}

Corner Corner::fitting(int64_t num_words, bool symmetric, int64_t most_cells) {
  const int64_t all = num_words * num_words;
  int64_t low = 0, high = std::min(all, 4 * std::min(all, most_cells) + 4);  // a corner has a quarter of its product at least
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (Corner(num_words, middle, symmetric).cells() <= most_cells)
      low = middle;
    else
      high = middle - 1;
  }
  return {num_words, low, symmetric};
}

CooccurrenceCounter::CooccurrenceCounter(
    std::span<const int32_t> table, std::span<const int64_t> weights, int64_t num_words, bool symmetric, int64_t most_cells, int64_t threads)
    : table_(table.begin(), table.end()),
      weights_(weights.begin(), weights.end()),
      num_words_(num_words),
      threads_(threads),
      symmetric_(symmetric),
      bits_(bits_of(num_words)),
      corner_(Corner::fitting(num_words, symmetric, most_cells)) {
  ELMO_CHECK_VALUE(weights.size() > 0 && weights.size() < 1 << kDistanceBits, "weights must be 1 to 255; got ", weights.size());
  ELMO_CHECK_VALUE(threads > 0 && most_cells >= 0, "threads must be at least 1 and most_cells 0; got ", threads, " and ", most_cells);
  const bool known = std::all_of(table.begin(), table.end(), [&](int32_t each) { return each < num_words; });
  ELMO_CHECK_VALUE(known, "table must hold words below num_words = ", num_words);
  counted_.resize(threads * corner_.cells());
}

int32_t CooccurrenceCounter::word_of(int32_t number) const {
  const auto size = static_cast<int64_t>(table_.size());
  ELMO_CHECK_INDEX(number >= 0 && number < size, "numbers must lie from 0 to ", size - 1, "; got ", number);
  return table_[number];
}

void CooccurrenceCounter::count_range(
    std::span<const int32_t> numbers, int64_t begin, int64_t end, int64_t* cells, std::vector<uint64_t>& records) const {
  std::vector<int32_t> words;  // of the sentence, up to `at`; of those before `begin`, as many as a window reaches
  for (int64_t at = begin; at > 0 && words.size() < weights_.size();) {
    const int32_t word = word_of(numbers[--at]);
    if (word == kBoundary) break;
    if (word >= 0) words.push_back(word);
  }
  std::reverse(words.begin(), words.end());
  const int shift = bits_ + kDistanceBits;
  for (int64_t at = begin; at < end; ++at) {
    const int32_t word = word_of(numbers[at]);
    if (word < 0) {
      if (word == kBoundary) words.clear();
      continue;
    }
    const auto reach = static_cast<int64_t>(std::min(words.size(), weights_.size()));
    for (int64_t k = 0; k < reach; ++k) {
      const int32_t before = words[words.size() - 1 - k];
      const int64_t row = symmetric_ ? std::min(word, before) : word, column = symmetric_ ? std::max(word, before) : before;
      if (column < corner_.end(row))
        cells[corner_.place(row, column)] += weights_[k];
      else
        records.push_back(static_cast<uint64_t>(row) << shift | static_cast<uint64_t>(column) << kDistanceBits | static_cast<uint64_t>(k));
    }
    words.push_back(word);
  }
}

std::vector<Run> CooccurrenceCounter::count(std::span<const int32_t> numbers, int64_t begin, int64_t end) {
  ELMO_CHECK_VALUE(
      begin >= 0 && begin <= end && end <= static_cast<int64_t>(numbers.size()), "begin and end must lie within numbers; got ", begin, " and ", end);
  std::vector<Run> runs(threads_);
  parallel_for(threads_, 1, [&](int64_t from, int64_t to) {
    for (int64_t t = from; t < to; ++t) {
      std::vector<uint64_t> records;
      const int64_t first = begin + (end - begin) * t / threads_, last = begin + (end - begin) * (t + 1) / threads_;
      count_range(numbers, first, last, counted_.data() + t * corner_.cells(), records);
      radix_sort(records, 2 * bits_, [](uint64_t record) { return record >> kDistanceBits; });
      runs[t] = run_of(records, weights_);
    }
  });
  return runs;
}

// Calls visit(row, column, sum) for every cell that is not 0, by row and column. In a row the columns of the corner come first.
template <typename Visit>
void CooccurrenceCounter::each(std::vector<RunView> runs, const Visit& visit) const {
  std::erase_if(runs, [](const RunView& run) { return run.keys.empty(); });
  std::make_heap(runs.begin(), runs.end(), later);
  const int64_t mask = (int64_t{1} << bits_) - 1;
  for (int64_t row = 0; row < num_words_ && (row < corner_.rows() || !runs.empty()); ++row) {
    for (int64_t column = row < corner_.rows() ? corner_.begin(row) : 0; column < corner_.end(row); ++column) {
      int64_t sum = 0;
      for (int64_t t = 0; t < threads_; ++t) sum += counted_[t * corner_.cells() + corner_.place(row, column)];
      if (sum != 0) visit(row, column, sum);
    }
    while (!runs.empty() && runs.front().keys.front() >> bits_ == row) {
      const int64_t key = runs.front().keys.front();
      int64_t sum = 0;
      while (!runs.empty() && runs.front().keys.front() == key) {
        std::pop_heap(runs.begin(), runs.end(), later);
        RunView& run = runs.back();
        sum += run.sums.front();
        run = {run.keys.subspan(1), run.sums.subspan(1)};
        if (run.keys.empty())
          runs.pop_back();
        else
          std::push_heap(runs.begin(), runs.end(), later);
      }
      ELMO_CHECK_INDEX((key & mask) < num_words_, "column ", key & mask, " of ", num_words_, " words");
      visit(row, key & mask, sum);
    }
  }
}

// Everything is gone through twice: once to know how many entries a row has, once to write them. Of a symmetric matrix the entries below the
// diagonal mirror those above it, which were counted.
Entries CooccurrenceCounter::merge(std::vector<RunView> runs, int64_t scale) const {
  for (const RunView& run : runs)
    ELMO_CHECK_VALUE(run.keys.size() == run.sums.size(), "keys and sums must be as many; got ", run.keys.size(), " and ", run.sums.size());
  std::vector<int64_t> direct(num_words_), mirrored(num_words_);
  each(runs, [&](int64_t row, int64_t column, int64_t) {
    ++direct[row];
    if (symmetric_ && row != column) ++mirrored[column];
  });
  int64_t total = 0;
  for (int64_t row = 0; row < num_words_; ++row) {
    total += std::exchange(mirrored[row], total);
    total += std::exchange(direct[row], total);
  }
  Entries found{
      total, std::make_unique_for_overwrite<int32_t[]>(total), std::make_unique_for_overwrite<int32_t[]>(total),
      std::make_unique_for_overwrite<float[]>(total)};
  const auto put = [&](int64_t place, int64_t row, int64_t column, float value) {
    ELMO_CHECK_VALUE(place < total, "the runs changed while they were merged");
    found.rows[place] = static_cast<int32_t>(row);
    found.columns[place] = static_cast<int32_t>(column);
    found.values[place] = value;
  };
  each(std::move(runs), [&](int64_t row, int64_t column, int64_t sum) {
    const bool both = symmetric_ && row == column;  // a pair of equal words counts from either of them
    const auto value = static_cast<float>(static_cast<double>(both ? 2 * sum : sum) / static_cast<double>(scale));
    put(direct[row]++, row, column, value);
    if (symmetric_ && row != column) put(mirrored[column]++, column, row, value);
  });
  return found;
}

}  // namespace elmo_fast
