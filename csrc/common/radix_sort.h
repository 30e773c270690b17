// Sorting by whole numbers.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace elmo_fast {

// Sorts by key(record), a whole number of `bits` bits, digit after digit from the last; records of equal keys keep their order.
template <typename Record, typename Key>
void radix_sort(std::vector<Record>& records, int bits, const Key& key) {
  constexpr int kDigitBits = 11;
  constexpr int64_t kDigits = int64_t{1} << kDigitBits;
  std::vector<Record> other(records.size());
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    std::array<int64_t, kDigits> place{};
    for (const Record& record : records) ++place[key(record) >> shift & (kDigits - 1)];
    int64_t at = 0;
    for (int64_t& each : place) at += std::exchange(each, at);
    for (const Record& record : records) other[place[key(record) >> shift & (kDigits - 1)]++] = record;
    records.swap(other);
  }
}

}  // namespace elmo_fast
