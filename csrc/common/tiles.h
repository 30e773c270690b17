// bfloat16 products on the CPU's matrix tiles (AMX). The right operand lies in the order in which tiles are loaded, so that the hardware's
// own prefetcher sees a plain stream: products of few rows are bound by it.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 11))
#include <immintrin.h>
#define ELMO_AMX __attribute__((target("amx-tile,amx-bf16")))
// Where vector arithmetic runs between the tiles' instructions; every CPU that has_tile_kernel() accepts has both.
#define ELMO_AMX_AND_VECTORS __attribute__((target("arch=x86-64-v4,amx-tile,amx-bf16")))
#endif

namespace elmo_fast {

// Whether this CPU has the tiles, the system lets us use them, and the compiler knew them.
bool has_tile_kernel();

// c[M, 64] (+)= x[M, K] · W[K, 64], K even. x, w: bits of bfloat16. W: four groups of 16 columns, `group` elements apart, each
// [K/2][16][2]. Rows of x may overlap. Call release_tiles() on the same thread when done with a run of calls.
void multiply_tiles(
    int64_t m, int64_t k, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc, bool accumulate);
void release_tiles();

constexpr int64_t kTileRows = 16, kTileTerms = 32;  // a tile: 16 rows of 64 bytes, 32 terms of bfloat16 or 16 sums of float32

// Gives this thread's tiles the shapes for min(m, 32) rows of x and steps of `terms` terms. Tiles 0 to 3: sums, 2 x 2; 4, 5: rows of x;
// 6, 7: columns of W.
void set_tile_shapes(int64_t m, int64_t terms);

#ifdef ELMO_AMX

// c[32, 32] in tiles 0 to 3; the lower two only if `both`, for more than 16 rows.
ELMO_AMX __attribute__((always_inline)) inline void load_sums(const float* c, int64_t ldc, bool both, bool zero) {
  const int64_t row = ldc * 4;
  const float* below = c + kTileRows * ldc;
  if (zero) {
    _tile_zero(0);
    _tile_zero(1);
    if (both) _tile_zero(2);
    if (both) _tile_zero(3);
  } else {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 16, row);
    if (both) _tile_loadd(2, below, row);
    if (both) _tile_loadd(3, below + 16, row);
  }
}
ELMO_AMX __attribute__((always_inline)) inline void add_terms(
    const uint16_t* x, int64_t ldx, const uint16_t* left, const uint16_t* right, bool both) {
  _tile_loadd(6, left, 64);
  _tile_loadd(4, x, ldx * 2);
  _tile_loadd(7, right, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if (both) {
    _tile_loadd(5, x + kTileRows * ldx, ldx * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}
ELMO_AMX __attribute__((always_inline)) inline void store_sums(float* c, int64_t ldc, bool both) {
  const int64_t row = ldc * 4;
  float* below = c + kTileRows * ldc;
  _tile_stored(0, c, row);
  _tile_stored(1, c + 16, row);
  if (both) _tile_stored(2, below, row);
  if (both) _tile_stored(3, below + 16, row);
}

#endif

// c[M, 64] = x[M, K] · W for M <= 32 and K a multiple of 32, in steps between which other arithmetic runs: one waits for memory while the
// other computes. set_tile_shapes(m, 32) before the first step.
struct TileProduct {
  int64_t m, k;
  const uint16_t* x;
  int64_t ldx;
  const uint16_t* w;
  int64_t group;
  float* c;

  int64_t steps() const { return 2 * (k / kTileTerms); }
#ifdef ELMO_AMX
  ELMO_AMX __attribute__((always_inline)) inline void step(int64_t i) const {
    const int64_t in_half = k / kTileTerms, half = i >= in_half, t = (i - half * in_half) * kTileTerms;
    const bool both = m > kTileRows;
    const uint16_t* left = w + 2 * half * group + t * 16;
    if (t == 0) load_sums(c + 32 * half, 64, both, true);
    add_terms(x + t, ldx, left, left + group, both);
    if (t + kTileTerms == k) store_sums(c + 32 * half, 64, both);
  }
#endif
};

}  // namespace elmo_fast
