// The arithmetic of 16 cells over some rows, forward and backward: gates, cell clip, cell state. Products are done elsewhere.
#pragma once

#include <cstdint>
#include <limits>

#include "common/simd.h"

namespace elmo_fast::projected_lstm {

// Inputs and outputs of the cells of one block. products, gates: [rows][64] as i, f, g, o of 16 cells; gates hold W_ih x and receive the
// activations if they are saved; bias: [64]; c: [rows][16], state, clipped; before: [rows][16], receives the cell before its clip, null if not
// saved; h: [rows][16], receives σ(o) tanh(c).
template <typename T>
struct Cells {
  int64_t rows;
  const T* products;
  T* gates;
  const T* bias;
  T *c, *before, *h;
  T clip;
  const T *next_gates, *next_c;  // of the next block: fetched row by row, since nothing in memory leads to them
};

template <typename T, bool Save>
ELMO_INLINE void cells_of_row(
    const T* __restrict__ z, T* __restrict__ a, const T* __restrict__ bias, T* __restrict__ c, T* __restrict__ before, T* __restrict__ h,
    T clip) {
  for (int64_t j = 0; j < 16; ++j) {
    const T i = sigmoid_of(z[j] + (a[j] + bias[j]));
    const T f = sigmoid_of(z[16 + j] + (a[16 + j] + bias[16 + j]));
    const T g = tanh_of(z[32 + j] + (a[32 + j] + bias[32 + j]));
    const T o = sigmoid_of(z[48 + j] + (a[48 + j] + bias[48 + j]));
    const T cell = f * c[j] + i * g;
    const T clipped = clip_of(cell, clip);
    c[j] = clipped;
    h[j] = o * tanh_of(clipped);
    if (Save) {
      a[j] = i, a[16 + j] = f, a[32 + j] = g, a[48 + j] = o;
      before[j] = cell;
    }
  }
}
template <typename T, bool Save>
ELMO_INLINE void cells_of_row(const Cells<T>& of, int64_t row) {
  for (int64_t line = 0; line < 4; ++line) __builtin_prefetch(of.next_gates + row * 64 + line * 16, 1, 2);
  __builtin_prefetch(of.next_c + row * 16, 1, 2);
  cells_of_row<T, Save>(
      of.products + row * 64, of.gates + row * 64, of.bias, of.c + row * 16, Save ? of.before + row * 16 : nullptr, of.h + row * 16, of.clip);
}

// Between two rows some cache lines of the next block's weights, at `next`, are fetched, while the arithmetic leaves memory idle: more than
// 8 a row would fill the CPU's line buffers, and the arithmetic would wait.
template <typename T, bool Save>
ELMO_INLINE void cells_forward(const Cells<T>& of, const char* next) {
  for (int64_t row = 0; row < of.rows; ++row) {
    for (int64_t line = 0; line < 8; ++line) __builtin_prefetch(next + (row * 8 + line) * 64, 0, 2);
    cells_of_row<T, Save>(of, row);
  }
}

// dh: [rows][64] gradient of h; 16 columns are read; gates: [rows][64] activations; before: [rows][16] cell before its clip; previous: [rows][16]
// cell state entering the step, before its clip; dc: [rows][16] gradient of the cell state, updated in place; dgates: [rows][64], gradient of the
// pre-activations; bias: += their sums over rows, in double, because the sums of all steps are one chain; h: [rows][ld_h] receives σ(o) tanh(c)
// again.
template <typename T>
ELMO_INLINE void cells_backward(
    int64_t rows, const T* __restrict__ dh, const T* __restrict__ gates, const T* __restrict__ before, const T* __restrict__ previous,
    T previous_clip, T* __restrict__ dc, T* __restrict__ dgates, double* __restrict__ bias, T* __restrict__ h, int64_t ld_h, T clip) {
  T sums[64] = {};
  const bool all = clip == std::numeric_limits<T>::infinity();  // no clip, which passes NaN's gradient too
  for (int64_t row = 0; row < rows; ++row) {
    const T* a = gates + row * 64;
    T* dz = dgates + row * 64;
    for (int64_t j = 0; j < 16; ++j) {
      const T i = a[j], f = a[16 + j], g = a[32 + j], o = a[48 + j];
      const T cell = before[row * 16 + j], tanh_c = tanh_of(clip_of(cell, clip));
      const T d = dh[row * 64 + j];
      const bool inside = all || (cell >= -clip && cell <= clip);
      const T total = dc[row * 16 + j] + d * o * (T(1) - tanh_c * tanh_c);
      const T dcell = inside ? total : T(0);
      dz[j] = dcell * g * i * (T(1) - i);
      dz[16 + j] = dcell * clip_of(previous[row * 16 + j], previous_clip) * f * (T(1) - f);
      dz[32 + j] = dcell * i * (T(1) - g * g);
      dz[48 + j] = d * tanh_c * o * (T(1) - o);
      dc[row * 16 + j] = dcell * f;
      h[row * ld_h + j] = o * tanh_c;
    }
    for (int64_t j = 0; j < 64; ++j) sums[j] += dz[j];
  }
  for (int64_t j = 0; j < 64; ++j) bias[j] += sums[j];
}

}  // namespace elmo_fast::projected_lstm
