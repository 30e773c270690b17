#include "common/tiles.h"

#ifdef ELMO_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#endif

namespace elmo_fast {

#ifdef ELMO_AMX

namespace {

// Linux hands the tile registers out on request (Documentation/arch/x86/xstate.rst): 0x1023 asks for state component 18.
bool tiles_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool bfloat16 = (d >> 22) & 1, tiles = (d >> 24) & 1;
  const bool vectors = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl");
  return bfloat16 && tiles && vectors && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

// The operand of ldtilecfg (Intel SDM, LDTILECFG).
struct alignas(64) Shapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  Shapes(int64_t m, int64_t terms) {
    const int64_t upper = std::min(m, kTileRows), lower = std::clamp<int64_t>(m - kTileRows, 1, kTileRows);
    for (int tile = 0; tile < 8; ++tile) {
      bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 2 * terms : 64);
      rows[tile] = static_cast<uint8_t>(tile >= 6 ? terms / 2 : tile == 2 || tile == 3 || tile == 5 ? lower : upper);
    }
  }
};

// The shapes that this thread's registers have: setting them again for every product is a large part of its time.
thread_local int64_t set_rows = 0, set_terms = 0;

// Up to 32 rows (more than 16 if Both) and 32 columns, K in steps of `terms`.
template <bool Both>
ELMO_AMX void multiply_group(
    int64_t k, int64_t terms, const uint16_t* x, int64_t ldx, const uint16_t* left, const uint16_t* right, float* c, int64_t ldc,
    bool accumulate) {
  load_sums(c, ldc, Both, !accumulate);
  for (int64_t t = 0; t < k; t += terms) add_terms(x + t, ldx, left + t * 16, right + t * 16, Both);
  store_sums(c, ldc, Both);
}

void multiply_steps(
    int64_t m, int64_t k, int64_t terms, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc,
    bool accumulate) {
  for (int half = 0; half < 2; ++half)
    for (int64_t i = 0; i < m; i += 2 * kTileRows) {
      set_tile_shapes(m - i, terms);
      const auto multiply = m - i > kTileRows ? multiply_group<true> : multiply_group<false>;
      const uint16_t* left = w + 2 * half * group;
      multiply(k, terms, x + i * ldx, ldx, left, left + group, c + i * ldc + 32 * half, ldc, accumulate);
    }
}

}  // namespace

bool has_tile_kernel() {
  static const bool granted = tiles_granted();
  return granted;
}

ELMO_AMX void set_tile_shapes(int64_t m, int64_t terms) {
  const int64_t rows = std::min(m, 2 * kTileRows);
  if (rows == set_rows && terms == set_terms) return;
  const Shapes shapes(rows, terms);
  asm volatile("" : : "r"(&shapes) : "memory");  // GCC's intrinsic tells of 8 of the 64 bytes that it reads
  _tile_loadconfig(&shapes);
  set_rows = rows;
  set_terms = terms;
}

void multiply_tiles(
    int64_t m, int64_t k, const uint16_t* x, int64_t ldx, const uint16_t* w, int64_t group, float* c, int64_t ldc, bool accumulate) {
  const int64_t whole = k / kTileTerms * kTileTerms;
  if (whole > 0) multiply_steps(m, whole, kTileTerms, x, ldx, w, group, c, ldc, accumulate);
  if (whole < k) multiply_steps(m, k - whole, k - whole, x + whole, ldx, w + whole * 16, group, c, ldc, accumulate || whole > 0);
}

ELMO_AMX void release_tiles() {
  _tile_release();
  set_rows = set_terms = 0;
}

#else

bool has_tile_kernel() { return false; }
void set_tile_shapes(int64_t, int64_t) {}
void multiply_tiles(int64_t, int64_t, const uint16_t*, int64_t, const uint16_t*, int64_t, float*, int64_t, bool) {}
void release_tiles() {}

#endif

}  // namespace elmo_fast
