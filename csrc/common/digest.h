// Digests of memory, which show whether a packed copy is still that of its weight (elmo_fast/ops/_packed.py).
#pragma once

#include <cstdint>

namespace elmo_fast {

// 64 bits: equal for equal bytes, and for others different except once in 2^64.
uint64_t digest_of(const void* data, int64_t bytes);

// Likewise of 256 of `count` numbers of `size` bytes (at most 8), spread evenly, the first and the last among them.
uint64_t sample_of(const void* data, int64_t count, int64_t size);

}  // namespace elmo_fast
