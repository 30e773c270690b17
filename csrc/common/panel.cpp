#include "common/panel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define ELMO_AVX512 __attribute__((target("avx512f")))
#endif

namespace elmo_fast {

#ifdef ELMO_AVX512

bool has_panel_kernel() { return __builtin_cpu_supports("avx512f"); }

namespace {

// Terms of one sum. Longer sums are sums of these: a single chain of K terms rounds K times at the size of the whole.
constexpr int64_t kRun = 128;

// R rows: 2 R accumulators, and two registers for the panel's row.
template <int R>
ELMO_AVX512 void multiply_rows(
    int64_t k, const float* x, int64_t ldx, const float* panel, const char* ahead, float* c, int64_t ldc, bool accumulate) {
  for (int64_t first = 0; first < k; first += kRun, accumulate = true) {
    const int64_t end = k - first < kRun ? k : first + kRun;
    __m512 sum[R][2];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int64_t t = first; t < end; ++t) {
      const __m512 w0 = _mm512_loadu_ps(panel + t * 32), w1 = _mm512_loadu_ps(panel + t * 32 + 16);
      if (ahead != nullptr) _mm_prefetch(ahead + t * 64, _MM_HINT_T1);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const __m512 value = _mm512_set1_ps(x[i * ldx + t]);
        sum[i][0] = _mm512_fmadd_ps(value, w0, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(value, w1, sum[i][1]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
      for (int half = 0; half < 2; ++half) {
        float* target = c + i * ldc + 16 * half;
        _mm512_storeu_ps(target, accumulate ? _mm512_add_ps(_mm512_loadu_ps(target), sum[i][half]) : sum[i][half]);
      }
  }
}

template <int R>
ELMO_AVX512 void multiply_last(
    int64_t rows, int64_t k, const float* x, int64_t ldx, const float* panel, const char* ahead, float* c, int64_t ldc, bool accumulate) {
  if constexpr (R > 0) {
    if (rows == R) return multiply_rows<R>(k, x, ldx, panel, ahead, c, ldc, accumulate);
    multiply_last<R - 1>(rows, k, x, ldx, panel, ahead, c, ldc, accumulate);
  }
}

}  // namespace

void multiply_panel(
    int64_t m, int64_t k, const float* x, int64_t ldx, const float* panel, const float* next, float* c, int64_t ldc, bool accumulate) {
  constexpr int64_t rows = 12;
  const auto* ahead = reinterpret_cast<const char*>(next);
  for (int64_t i = 0; i < m; i += rows, x += rows * ldx, c += rows * ldc) {
    // Half of the next panel, 64 K bytes, with each of the first two groups of rows.
    const char* part = ahead == nullptr || i >= 2 * rows ? nullptr : ahead + i / rows * 64 * k;
    if (m - i >= rows)
      multiply_rows<rows>(k, x, ldx, panel, part, c, ldc, accumulate);
    else
      multiply_last<rows - 1>(m - i, k, x, ldx, panel, part, c, ldc, accumulate);
  }
}

#else

bool has_panel_kernel() { return false; }
void multiply_panel(int64_t, int64_t, const float*, int64_t, const float*, const float*, float*, int64_t, bool) {}

#endif

}  // namespace elmo_fast
