// Products of bfloat16 pairs and of int8 in fours on the CPU's matrix tiles (AMX). The right operand lies in the order in which tiles are
// loaded, so that the hardware's own prefetcher sees a plain stream: products of few rows are bound by it.
#pragma once

#include <cstdint>

#include "common/block_kernels.h"

// A test defines ELMO_AMX, and the instructions in software (tests/csrc/tile_model.h).
#if !defined(ELMO_AMX) && defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 11))
#include <immintrin.h>
#define ELMO_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))
// Instruction set of the vector arithmetic between the tiles' instructions; every CPU that has_tile_kernel() accepts has both.
#define ELMO_AMX_AND_VECTORS __attribute__((target("arch=x86-64-v4,amx-tile,amx-bf16,amx-int8")))
#endif

namespace elmo_fast {

// True if this CPU has the tiles, the system permits them, and the compiler supported them.
bool has_tile_kernel();

// The kernels, as block_kernels.h has them; of int8 in fours. Call release_tiles() on the same thread when done with a run of calls.
void multiply_bfloat16_tiles(const BlockProduct&);
void multiply_int8_tiles(const BlockProduct&);
void release_tiles();

constexpr int64_t kTileRows = 16, kTileBytes = 64, kUnitBytes = 4;  // a tile: 16 rows of 16 units, or of 16 sums

// Gives this thread's tiles the shapes for min(m, 32) rows of x and steps of `bytes`. Tiles 0 to 3: sums, 2 x 2; 4, 5: rows of x; 6, 7: columns
// of W.
void set_tile_shapes(int64_t m, int64_t bytes = kTileBytes);

enum class TileUnit { BFloat16Pair, Int8Quad };  // what four bytes of a tile hold

#ifdef ELMO_AMX

// c[32, 32], of 4 bytes each, in tiles 0 to 3; the lower two only if `both`, for more than 16 rows.
ELMO_AMX __attribute__((always_inline)) inline void load_sums(const char* c, int64_t ldc, bool both, bool zero) {
  const int64_t row = ldc * 4;
  const char* below = c + kTileRows * row;
  if (zero) {
    _tile_zero(0);
    _tile_zero(1);
    if (both) _tile_zero(2);
    if (both) _tile_zero(3);
  } else {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + kTileBytes, row);
    if (both) _tile_loadd(2, below, row);
    if (both) _tile_loadd(3, below + kTileBytes, row);
  }
}
template <TileUnit Unit>
ELMO_AMX __attribute__((always_inline)) inline void add_terms(const char* x, int64_t ldx, const char* left, const char* right, bool both) {
  _tile_loadd(6, left, kTileBytes);
  _tile_loadd(4, x, ldx);
  _tile_loadd(7, right, kTileBytes);
  if constexpr (Unit == TileUnit::BFloat16Pair) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  } else {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
  }
  if (!both) return;
  _tile_loadd(5, x + kTileRows * ldx, ldx);
  if constexpr (Unit == TileUnit::BFloat16Pair) {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  } else {
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
}
ELMO_AMX __attribute__((always_inline)) inline void store_sums(char* c, int64_t ldc, bool both) {
  const int64_t row = ldc * 4;
  char* below = c + kTileRows * row;
  _tile_stored(0, c, row);
  _tile_stored(1, c + kTileBytes, row);
  if (both) _tile_stored(2, below, row);
  if (both) _tile_stored(3, below + kTileBytes, row);
}

#endif

// c[M, 64] = x[M, K] · W of bfloat16 for M <= 32 and K whole tiles, in steps between which other arithmetic runs: one waits for memory while
// the other computes. k, ldx and group count bytes. set_tile_shapes(m) before the first step.
struct TileProduct {
  int64_t m, k;
  const char* x;
  int64_t ldx;
  const char* w;
  int64_t group;
  float* c;

  int64_t steps() const { return 2 * (k / kTileBytes); }
#ifdef ELMO_AMX
  ELMO_AMX __attribute__((always_inline)) inline void step(int64_t i) const {
    const int64_t in_half = k / kTileBytes, half = i >= in_half, t = (i - half * in_half) * kTileBytes;
    const bool both = m > kTileRows;
    const char* left = w + 2 * half * group + t * kTileRows;
    char* sums = reinterpret_cast<char*>(c + 32 * half);
    if (t == 0) load_sums(sums, 64, both, true);
    add_terms<TileUnit::BFloat16Pair>(x + t, ldx, left, left + group, both);
    if (t + kTileBytes == k) store_sums(sums, 64, both);
  }
#endif
};

}  // namespace elmo_fast
