#include "common/tiles.h"

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 11))
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#define ELMO_AMX __attribute__((target("amx-tile,amx-bf16")))
#endif

namespace elmo_fast {

#ifdef ELMO_AMX

namespace {

constexpr int64_t kRowsOfTile = 16, kTerms = 32;  // a tile: 16 rows of 64 bytes, 32 terms of bfloat16 or 16 sums of float32

// Linux hands the tile registers out on request (Documentation/arch/x86/xstate.rst): 0x1023 asks for state component 18.
bool tiles_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool bfloat16 = (d >> 22) & 1, tiles = (d >> 24) & 1;
  return bfloat16 && tiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

// The operand of ldtilecfg (Intel SDM, LDTILECFG). Tiles 0 to 3: sums, 2 x 2; 4 and 5: rows of x; 6 and 7: columns of W.
struct alignas(64) Shapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  Shapes(int64_t m, int64_t terms) {
    const int64_t upper = std::min(m, kRowsOfTile), lower = std::clamp<int64_t>(m - kRowsOfTile, 1, kRowsOfTile);
    for (int tile = 0; tile < 8; ++tile) {
      bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 2 * terms : 64);
      rows[tile] = static_cast<uint8_t>(tile >= 6 ? terms / 2 : tile == 2 || tile == 3 || tile == 5 ? lower : upper);
    }
  }
};

// The shapes that this thread's registers have: setting them takes about 1000 cycles, as long as half a product.
thread_local int64_t set_rows = 0, set_terms = 0;

ELMO_AMX void set_shapes(int64_t m, int64_t terms) {
  if (m == set_rows && terms == set_terms) return;
  const Shapes shapes(m, terms);
  _tile_loadconfig(&shapes);
  set_rows = m;
  set_terms = terms;
}

// Up to 32 rows (more than 16 if Both) and 32 columns, K in steps of `terms`.
template <bool Both>
ELMO_AMX void multiply_group(
    int64_t k, int64_t terms, const uint16_t* x, int64_t ldx, const uint16_t* left, const uint16_t* right, float* c, int64_t ldc,
    bool accumulate) {
  const int64_t row = ldc * 4;
  float* below = c + kRowsOfTile * ldc;
  if (accumulate) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 16, row);
    if constexpr (Both) _tile_loadd(2, below, row);
    if constexpr (Both) _tile_loadd(3, below + 16, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (Both) _tile_zero(2);
    if constexpr (Both) _tile_zero(3);
  }
  for (int64_t t = 0; t < k; t += terms) {
    _tile_loadd(6, left + t * 16, 64);
    _tile_loadd(4, x + t, ldx * 2);
    _tile_loadd(7, right + t * 16, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (Both) {
      _tile_loadd(5, x + kRowsOfTile * ldx + t, ldx * 2);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + 16, row);
  if constexpr (Both) _tile_stored(2, below, row);
  if constexpr (Both) _tile_stored(3, below + 16, row);
}

ELMO_AMX void multiply_steps(
    int64_t m, int64_t k, int64_t terms, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc,
    bool accumulate) {
  for (int half = 0; half < 2; ++half)
    for (int64_t i = 0; i < m; i += 2 * kRowsOfTile) {
      set_shapes(std::min(m - i, 2 * kRowsOfTile), terms);
      const auto multiply = m - i > kRowsOfTile ? multiply_group<true> : multiply_group<false>;
      const uint16_t* left = w + 2 * half * group;
      multiply(k, terms, x + i * ldx, ldx, left, left + group, c + i * ldc + 32 * half, ldc, accumulate);
    }
}

}  // namespace

bool has_tile_kernel() {
  static const bool granted = tiles_granted();
  return granted;
}

void multiply_tiles(
    int64_t m, int64_t k, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc, bool accumulate) {
  const int64_t whole = k / kTerms * kTerms;
  if (whole > 0 || k == 0) multiply_steps(m, whole, kTerms, x, ldx, w, group, c, ldc, accumulate);
  if (whole < k) multiply_steps(m, k - whole, k - whole, x + whole, ldx, w + whole * 16, group, c, ldc, accumulate || whole > 0);
}

ELMO_AMX void release_tiles() {
  _tile_release();
  set_rows = set_terms = 0;
}

#else

bool has_tile_kernel() { return false; }
void multiply_tiles(int64_t, int64_t, const uint16_t*, int64_t, const uint16_t*, int64_t, float*, int64_t, bool) {}
void release_tiles() {}

#endif

}  // namespace elmo_fast
