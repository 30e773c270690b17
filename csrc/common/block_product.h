// The product of block_kernels.h, written once. A form F says how an instruction set holds and multiplies operands: types X, W, C and Sum;
// kWidth columns of a vector; kTerms of a unit; kRows multiplied together; zero, load, broadcast, add, store.
#pragma once

#include "common/block_kernels.h"

namespace elmo_fast {

// Units of one sum. Longer sums are sums of these: a single chain of K terms rounds K times at the size of the whole. A run of two groups
// of columns stays in the first-level cache while all rows are multiplied with it.
constexpr int64_t kRun = 128;

// What is multiplied after: fetched while this is multiplied, because few rows are bound by streaming W.
struct Ahead {
  const char *first = nullptr, *second = nullptr;
};

// R rows, two vectors of columns, units first..end-1: 2 R sums in registers.
template <class F, int R>
inline void multiply_rows(
    int64_t first, int64_t end, const typename F::X* x, int64_t ldx, const typename F::W* left, const typename F::W* right, Ahead ahead,
    typename F::C* c, int64_t ldc, bool accumulate) {
  constexpr int64_t step = kGroup * F::kTerms, bytes = step * sizeof(typename F::W);
  typename F::Sum sum[R][2];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = F::zero();
#pragma GCC unroll 2
  for (int64_t t = first; t < end; ++t) {
    const auto w0 = F::load(left + t * step), w1 = F::load(right + t * step);
    if (ahead.first != nullptr) __builtin_prefetch(ahead.first + t * bytes, 0, 2);
    if (ahead.second != nullptr) __builtin_prefetch(ahead.second + t * bytes, 0, 2);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const auto value = F::broadcast(x + i * ldx + t * F::kTerms);
      sum[i][0] = F::add(sum[i][0], value, w0);
      sum[i][1] = F::add(sum[i][1], value, w1);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    F::store(c + i * ldc, sum[i][0], accumulate);
    F::store(c + i * ldc + F::kWidth, sum[i][1], accumulate);
  }
}

// The same for `rows` rows, at most R.
template <class F, int R>
inline void multiply_some_rows(
    int64_t rows, int64_t first, int64_t end, const typename F::X* x, int64_t ldx, const typename F::W* left, const typename F::W* right,
    Ahead ahead, typename F::C* c, int64_t ldc, bool accumulate) {
  if constexpr (R > 0) {
    if (rows >= R) return multiply_rows<F, R>(first, end, x, ldx, left, right, ahead, c, ldc, accumulate);
    multiply_some_rows<F, R - 1>(rows, first, end, x, ldx, left, right, ahead, c, ldc, accumulate);
  }
}

template <class F>
void multiply_block(const BlockProduct& p) {
  constexpr int64_t columns = 2 * F::kWidth, groups = columns > kGroup ? 2 : 1;
  const auto* x = static_cast<const typename F::X*>(p.x);
  const int64_t units = p.terms / F::kTerms;
  for (int64_t column = 0; column < kBlock; column += columns) {
    const auto* left = static_cast<const typename F::W*>(p.w) + column / kGroup * p.group + column % kGroup * F::kTerms;
    const auto* right = groups == 2 ? left + p.group : left + F::kWidth * F::kTerms;
    const bool prefetch = p.prefetch && column % kGroup == 0;
    const auto* next = prefetch ? reinterpret_cast<const char*>(left + groups * p.group) : nullptr;
    const auto* after = prefetch && groups == 2 ? reinterpret_cast<const char*>(right + groups * p.group) : nullptr;
    for (int64_t first = 0; first < units; first += kRun) {
      const int64_t end = units - first < kRun ? units : first + kRun;
      for (int64_t i = 0; i < p.m; i += F::kRows) {
        // One line a unit with each of the first two groups of rows: more would wait for the CPU's line buffers.
        const Ahead ahead = p.m <= F::kRows ? Ahead{next, after} : i == 0 ? Ahead{next} : i == F::kRows ? Ahead{after} : Ahead{};
        multiply_some_rows<F, F::kRows>(
            p.m - i, first, end, x + i * p.ldx, p.ldx, left, right, ahead, static_cast<typename F::C*>(p.c) + i * p.ldc + column, p.ldc,
            p.accumulate || first > 0);
      }
    }
  }
}

}  // namespace elmo_fast
