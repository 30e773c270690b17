// unique_rows: distinct rows in the order of their first occurrence, by hashing with an exact comparison on every hit.
#include <bit>
#include <cstring>
#include <vector>

#include "common/tensor.h"

namespace elmo_fast {
namespace {

// Two multiply-rotate lanes over the row's ids, mixed at the end; equal rows hash alike, and that is all that is relied on.
template <typename id_t>
uint64_t hash_row(const id_t* row, int64_t columns) {
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15ull, kSecond = 0xC2B2AE3D27D4EB4Full;
  uint64_t a = kFirst ^ static_cast<uint64_t>(columns), b = kSecond;
  int64_t c = 0;
  for (; c + 1 < columns; c += 2) {
    a = std::rotl((a ^ static_cast<uint64_t>(row[c])) * kSecond, 31);
    b = std::rotl((b ^ static_cast<uint64_t>(row[c + 1])) * kFirst, 29);
  }
  if (c < columns) a = std::rotl((a ^ static_cast<uint64_t>(row[c])) * kSecond, 31);
  uint64_t h = a ^ std::rotl(b, 17);
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDull;
  h = (h ^ (h >> 29)) * 0xC4CEB9FE1A85EC53ull;
  return h ^ (h >> 32);
}

// Fills inverse[rows] and returns the first row of each distinct value, in order.
template <typename id_t>
std::vector<int64_t> first_occurrences(const id_t* ids, int64_t rows, int64_t columns, int64_t* inverse) {
  struct Slot {
    uint64_t hash;
    int64_t unique;  // -1: empty
  };
  std::vector<int64_t> firsts;
  const uint64_t mask = std::bit_ceil(static_cast<uint64_t>(2 * rows + 1)) - 1;
  std::vector<Slot> table(mask + 1, Slot{0, -1});
  for (int64_t r = 0; r < rows; ++r) {
    const id_t* row = ids + r * columns;
    const uint64_t hash = hash_row(row, columns);
    uint64_t place = hash & mask;
    while (table[place].unique >= 0 &&
           (table[place].hash != hash ||
            std::memcmp(ids + firsts[table[place].unique] * columns, row, sizeof(id_t) * columns) != 0))
      place = (place + 1) & mask;
    if (table[place].unique < 0) {
      table[place] = {hash, static_cast<int64_t>(firsts.size())};
      firsts.push_back(r);
    }
    inverse[r] = table[place].unique;
  }
  return firsts;
}

std::tuple<Tensor, Tensor> unique_rows(const Tensor& ids_any) {
  Arguments("unique_rows").tensor("ids", ids_any, kWhole, {kAny, kAny});
  const Tensor ids = ids_any.contiguous();
  const int64_t rows = ids.size(0), columns = ids.size(1);
  Tensor inverse = empty({rows}, ids.options().dtype(kLong)), unique;
  const auto find = [&]<typename index_t>(const index_t* from) {
    const auto firsts = first_occurrences(from, rows, columns, inverse.mutable_data_ptr<int64_t>());
    unique = empty({static_cast<int64_t>(firsts.size()), columns}, ids.options());
    auto* to = unique.mutable_data_ptr<index_t>();
    for (const int64_t first : firsts) to = std::copy_n(from + first * columns, columns, to);
  };
  ids.scalar_type() == kLong ? find(ids.const_data_ptr<int64_t>()) : find(ids.const_data_ptr<int32_t>());
  return {unique, inverse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("unique_rows", ELMO_BOX(unique_rows)); }

}  // namespace elmo_fast
