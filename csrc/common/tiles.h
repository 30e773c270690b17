// bfloat16 products on the CPU's matrix tiles (AMX). The right operand lies in the order in which tiles are loaded, so that the hardware's
// own prefetcher sees a plain stream: products of few rows are bound by it.
#pragma once

#include <cstdint>

namespace elmo_fast {

// Whether this CPU has the tiles, the system lets us use them, and the compiler knew them.
bool has_tile_kernel();

// c[M, 64] (+)= x[M, K] · W[K, 64], K even. x, w: bits of bfloat16. W: four groups of 16 columns, `group` elements apart, each
// [K/2][16][2]. Rows of x may overlap. Call release_tiles() on the same thread when done with a run of calls.
void multiply_tiles(
    int64_t m, int64_t k, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc, bool accumulate);
void release_tiles();

}  // namespace elmo_fast
