// The product of block_kernels.h, written once. A form F says how an instruction set holds and multiplies operands: types X, W, C and Sum;
// kWidth columns of a vector; kTerms of a unit; kRows multiplied together with kVectors vectors; zero, load, broadcast, add, store.
#pragma once

#include "common/block_kernels.h"

namespace elmo_fast {

// Units of one sum. Longer sums are sums of these: a single chain of K terms rounds K times at the size of the whole. A run of two groups
// of columns stays in the first-level cache while all rows are multiplied with it.
constexpr int64_t kRun = 128;

// Prefetch distance of W for one row: the less of a cache line a unit is, the farther.
template <class F>
constexpr int64_t kNearBytes = kGroup * F::kTerms * sizeof(typename F::W) < 64 ? 2048 : 1024;

// Inputs and outputs of one call of multiply_rows: units first..end-1, rows from x, columns from w, sums from c.
template <class F>
struct Part {
  int64_t first, end;
  const typename F::X* x;
  int64_t ldx;
  const typename F::W* w;
  int64_t group;
  const typename F::W* ahead;  // W that is read after: fetched meanwhile, because few rows are bound by streaming W; or null
  typename F::C* c;
  int64_t ldc;
  bool accumulate;
};

// True if W is stored in fewer bits than its products are summed in: few rows then compute about as long as they wait for memory.
template <class F>
constexpr bool is_narrow = sizeof(typename F::W) < sizeof(float);

// True to prefetch the next operands into the first-level cache, not whole groups ahead into the second: better for one row of a narrow W, whose
// columns are all read together.
template <class F>
constexpr bool is_near(int64_t rows) {
  return is_narrow<F> && rows == 1;
}

// Vectors for few rows: as many as registers hold next to their sums, and a block has; with kVectors an addition would wait for the one before.
// One row uses a vector of W once, so W takes none. Not of float32, which comes from memory: fewer streams are read faster.
template <class F>
constexpr int vectors_for(int64_t rows) {
  int vectors = F::kVectors;
  const int64_t held = rows == 1 ? 1 : rows + 1;
  if (is_narrow<F>)
    while (2 * vectors * held <= F::kVectors * (F::kRows + 1) && 2 * vectors * F::kWidth <= kBlock) vectors *= 2;
  return vectors;
}

// R rows, V vectors of columns: R V sums in registers. Few: there are no other rows.
template <class F, int R, int V, bool Few>
inline void multiply_rows(const Part<F>& p) {
  constexpr int64_t step = kGroup * F::kTerms;
  constexpr int groups = (V * F::kWidth + kGroup - 1) / kGroup;
  constexpr bool near = Few && is_near<F>(R);
  typename F::Sum sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[i][v] = F::zero();
#pragma GCC unroll 2
  for (int64_t t = p.first; t < p.end; ++t) {
    decltype(F::load(p.w)) w[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      w[v] = F::load(p.w + v * F::kWidth / kGroup * p.group + t * step + v * F::kWidth % kGroup * F::kTerms);
    if (near || p.ahead != nullptr) {
#pragma GCC unroll 4
      for (int g = 0; g < (Few ? groups : 1); ++g)
        if constexpr (near)
          __builtin_prefetch(reinterpret_cast<const char*>(p.w + g * p.group + t * step) + kNearBytes<F>, 0, 3);
        else
          __builtin_prefetch(p.ahead + g * p.group + t * step, 0, 2);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const auto value = F::broadcast(p.x + i * p.ldx + t * F::kTerms);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[i][v] = F::add(sum[i][v], value, w[v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) F::store(p.c + i * p.ldc + v * F::kWidth, sum[i][v], p.accumulate);
}

// multiply_rows for `rows` rows, at most R.
template <class F, int R, bool Few>
inline void multiply_some_rows(int64_t rows, const Part<F>& p) {
  if constexpr (R > 0) {
    if (rows >= R) return multiply_rows<F, R, Few ? vectors_for<F>(R) : F::kVectors, Few>(p);
    multiply_some_rows<F, R - 1, Few>(rows, p);
  }
}

template <class F, bool Few>
inline void multiply_columns(const BlockProduct& p) {
  const int64_t columns = (Few ? vectors_for<F>(p.m) : F::kVectors) * F::kWidth, groups = (columns + kGroup - 1) / kGroup;
  const int64_t units = p.terms / F::kTerms, parts = (p.m + F::kRows - 1) / F::kRows;
  for (int64_t column = 0; column < kBlock; column += columns) {
    const auto* w = static_cast<const typename F::W*>(p.w) + column / kGroup * p.group + column % kGroup * F::kTerms;
    for (int64_t first = 0; first < units; first += kRun) {
      const int64_t end = units - first < kRun ? units : first + kRun;
      for (int64_t part = 0; part < parts; ++part) {  // as many rows in each: few in the last would wait for their sums
        const int64_t i = p.m * part / parts, rows = p.m * (part + 1) / parts - i;
        // One line a unit with each of the first two parts: more would wait for the CPU's line buffers.
        const auto* ahead = p.prefetch && column % kGroup == 0 && part < groups ? w + (groups + part) * p.group : nullptr;
        multiply_some_rows<F, F::kRows, Few>(
            rows, {first, end, static_cast<const typename F::X*>(p.x) + i * p.ldx, p.ldx, w, p.group, ahead,
                   static_cast<typename F::C*>(p.c) + i * p.ldc + column, p.ldc, p.accumulate || first > 0});
      }
    }
  }
}

template <class F>
void multiply_block(const BlockProduct& p) {
  p.m <= F::kRows ? multiply_columns<F, true>(p) : multiply_columns<F, false>(p);
}

}  // namespace elmo_fast
