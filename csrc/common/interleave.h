// The inner loops of packing: 16 lines side by side, pairs of two lines, and stores past the caches.
#pragma once

#include <cstdint>

#include "common/block_kernels.h"

namespace elmo_fast {

// target[i][j] = lines[j][i] for 16 lines of `count` units.
void interleave_units(const uint16_t* const* lines, int64_t count, uint16_t* target);
void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target);
void interleave_units(const double* const* lines, int64_t count, double* target);

// target[j] = (even[j], odd[j]) for the 64 columns of a block.
void zip_columns(const uint16_t* even, const uint16_t* odd, uint32_t* target);

// Copies whole cache lines (64 bytes, the target aligned to them) past the caches: a large target is gone from them before it is read, and
// a store through them would read each line first. Other threads may read it after `finish_writes` on this one.
void write_past_caches(const void* source, void* target, int64_t bytes);
void finish_writes();

}  // namespace elmo_fast
