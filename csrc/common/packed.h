// Packed copies of weights, cached while the weights are alive and unchanged, and the digests that show whether they are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/gemm.h"

namespace elmo_fast {

// A 64-bit digest of bytes: equal for equal ones, and for others different except once in 2^64.
uint64_t digest_of(const void* data, int64_t bytes);

// Cache settings for the weights of one call. A stamp is a number that Python assigns to a weight's storage (elmo_fast/ops/_weights.py). It is
// unique, and only operations that increment the version counter have written to the storage since; kUnstamped stands for all other storages.
constexpr int64_t kUnstamped = 0;
struct Caching {
  std::vector<int64_t> stamps;  // of the weights in the order of the op's arguments; empty: none has one
  bool trains;                  // weights without a stamp are about to change: their copies are neither looked for nor cached
  int64_t stamp(size_t weight) const { return weight < stamps.size() ? stamps[weight] : kUnstamped; }
};

// Returns `make()`, the packed copy of `weight` under `layout` (a name for the arrangement that `make` produces), or a cached copy. With a stamp a
// cached copy is valid while storage, address, counter and a sample of the values are the same; without one, if a digest of the whole weight is the
// same. Weights that are not dense (views, expanded rows) are not cached. `number`: the weight's index among the stamps.
std::shared_ptr<const Packed> packed_of(
    const Tensor& weight, const std::string& layout, Operand operand, const Caching& caching, size_t number,
    const std::function<Packed()>& make);

// torch's stable ABI has no weak reference to a storage: Python holds one (elmo_fast/ops/_weights.py), numbers it and notifies us when the storage
// is freed. No copy is cached before Python has declared that it does so.
void enable_caching();
void forget_packed(int64_t storage);

int64_t packed_count();
int64_t packed_bytes();
void clear_packed();

}  // namespace elmo_fast
