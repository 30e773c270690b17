#include "common/tiles.h"

#include <algorithm>

#if defined(ELMO_AMX) && !defined(ELMO_TILE_MODEL)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace elmo_fast {

#ifdef ELMO_AMX

namespace {

#ifdef ELMO_TILE_MODEL
bool tiles_granted() { return true; }
#else
// Linux hands the tile registers out on request (Documentation/arch/x86/xstate.rst): 0x1023 asks for state component 18.
bool tiles_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool bfloat16 = (d >> 22) & 1, tiles = (d >> 24) & 1, int8 = (d >> 25) & 1;
  const bool vectors = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl");
  return bfloat16 && tiles && int8 && vectors && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}
#endif

// The operand of ldtilecfg (Intel SDM, LDTILECFG).
struct alignas(64) Shapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  Shapes(int64_t m, int64_t step) {
    const int64_t upper = std::min(m, kTileRows), lower = std::clamp<int64_t>(m - kTileRows, 1, kTileRows);
    for (int tile = 0; tile < 8; ++tile) {
      bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? step : kTileBytes);
      rows[tile] = static_cast<uint8_t>(tile >= 6 ? step / kUnitBytes : tile == 2 || tile == 3 || tile == 5 ? lower : upper);
    }
  }
};

// The shapes that this thread's registers have: setting them again for every product is a large part of its time.
thread_local int64_t set_rows = 0, set_bytes = 0;

// Up to 32 rows (more than 16 if Both) and 32 columns, K in steps of `step` bytes.
template <TileUnit Unit, bool Both>
ELMO_AMX void multiply_group(
    int64_t k, int64_t step, const char* x, int64_t ldx, const char* left, const char* right, char* c, int64_t ldc, bool accumulate) {
  load_sums(c, ldc, Both, !accumulate);
  for (int64_t t = 0; t < k; t += step) add_terms<Unit>(x + t, ldx, left + t * kTileRows, right + t * kTileRows, Both);
  store_sums(c, ldc, Both);
}

template <TileUnit Unit>
void multiply_steps(
    int64_t m, int64_t k, int64_t step, const char* x, int64_t ldx, const char* w, int64_t group, char* c, int64_t ldc, bool accumulate) {
  for (int half = 0; half < 2; ++half)
    for (int64_t i = 0; i < m; i += 2 * kTileRows) {
      set_tile_shapes(m - i, step);
      const auto multiply = m - i > kTileRows ? multiply_group<Unit, true> : multiply_group<Unit, false>;
      const char* left = w + 2 * half * group;
      multiply(k, step, x + i * ldx, ldx, left, left + group, c + (i * ldc + 32 * half) * 4, ldc, accumulate);
    }
}

// K in steps of whole tiles, then the rest. k, ldx and group count bytes.
template <TileUnit Unit>
void multiply_tiles(const BlockProduct& p) {
  constexpr int64_t term = Unit == TileUnit::BFloat16Pair ? 2 : 1;
  const int64_t k = p.terms * term, ldx = p.ldx * term, group = p.group * term, whole = k / kTileBytes * kTileBytes;
  const auto *x = static_cast<const char*>(p.x), *w = static_cast<const char*>(p.w);
  auto* c = static_cast<char*>(p.c);
  if (whole > 0) multiply_steps<Unit>(p.m, whole, kTileBytes, x, ldx, w, group, c, p.ldc, p.accumulate);
  if (whole < k)
    multiply_steps<Unit>(p.m, k - whole, k - whole, x + whole, ldx, w + whole * kTileRows, group, c, p.ldc, p.accumulate || whole > 0);
}

}  // namespace

bool has_tile_kernel() {
  static const bool granted = tiles_granted();
  return granted;
}

ELMO_AMX void set_tile_shapes(int64_t m, int64_t bytes) {
  const int64_t rows = std::min(m, 2 * kTileRows);
  if (rows == set_rows && bytes == set_bytes) return;
  const Shapes shapes(rows, bytes);
  asm volatile("" : : "r"(&shapes) : "memory");  // GCC's intrinsic declares 8 of the 64 bytes that it reads
  _tile_loadconfig(&shapes);
  set_rows = rows;
  set_bytes = bytes;
}

void multiply_bfloat16_tiles(const BlockProduct& p) { multiply_tiles<TileUnit::BFloat16Pair>(p); }
void multiply_int8_tiles(const BlockProduct& p) { multiply_tiles<TileUnit::Int8Quad>(p); }

ELMO_AMX void release_tiles() {
  _tile_release();
  set_rows = set_bytes = 0;
}

#else

bool has_tile_kernel() { return false; }
void set_tile_shapes(int64_t, int64_t) {}
void multiply_bfloat16_tiles(const BlockProduct&) {}
void multiply_int8_tiles(const BlockProduct&) {}
void release_tiles() {}

#endif

}  // namespace elmo_fast
