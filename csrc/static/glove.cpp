// glove: one pass of AdaGrad over non-zero entries, a share of them for each thread, all on the same tables without locks (Niu et al.
// 2011, Hogwild!). Floor: 16 D bytes read and as many written for each entry, 3.2 kB at D = 100.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "common/sums.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

// Rows lie anywhere in tables that no cache holds: their lines are asked for this many entries ahead.
constexpr int64_t kAhead = 3, kLineBytes = 64, kGrain = 4096;

template <typename T>
struct Tables {
  T *words, *contexts, *word_biases, *context_biases;
};

template <typename T>
struct Pass {
  const int32_t *rows, *columns;
  const T* values;
  Tables<T> w, a;  // parameters, and the sums of their squared steps
  int64_t dimension;
  T learning_rate, x_max, alpha;
};

template <typename T>
ELMO_INLINE void prefetch_row(const T* row, int64_t dimension) {
  const char* at = reinterpret_cast<const char*>(row);
  for (const char* const end = reinterpret_cast<const char*>(row + dimension); at < end; at += kLineBytes) __builtin_prefetch(at, 1);
}

template <typename T>
ELMO_INLINE void prefetch(const Pass<T>& p, int64_t entry) {
  const int64_t i = p.rows[entry] * p.dimension, j = p.columns[entry] * p.dimension;
  prefetch_row(p.w.words + i, p.dimension);
  prefetch_row(p.a.words + i, p.dimension);
  prefetch_row(p.w.contexts + j, p.dimension);
  prefetch_row(p.a.contexts + j, p.dimension);
}

template <typename T>
ELMO_INLINE void step(T& weight, T& squares, T gradient) {
  weight -= gradient / std::sqrt(squares);
  squares += gradient * gradient;
}

template <typename T>
ELMO_INLINE void step_rows(T* __restrict w, T* __restrict c, T* __restrict aw, T* __restrict ac, int64_t n, T slope) {
  for (int64_t d = 0; d < n; ++d) {
    const T for_word = slope * c[d], for_context = slope * w[d];
    step(w[d], aw[d], for_word);
    step(c[d], ac[d], for_context);
  }
}

template <typename T>
ELMO_INLINE double pass_of(const Pass<T>& p, int64_t begin, int64_t end) {
  double loss = 0;
  for (int64_t e = begin; e < end; ++e) {
    if (e + kAhead < end) prefetch(p, e + kAhead);
    const int64_t i = p.rows[e], j = p.columns[e], n = p.dimension;
    T *const w = p.w.words + i * n, *const c = p.w.contexts + j * n;
    const T x = p.values[e];
    const T weight = x < p.x_max ? std::pow(x / p.x_max, p.alpha) : T(1);
    const T difference = product_of<16>(w, c, n) + p.w.word_biases[i] + p.w.context_biases[j] - std::log(x);
    const T slope = p.learning_rate * weight * difference;
    loss += static_cast<double>(weight) * difference * difference;
    step_rows(w, c, p.a.words + i * n, p.a.contexts + j * n, n, slope);
    step(p.w.word_biases[i], p.a.word_biases[i], slope);
    step(p.w.context_biases[j], p.a.context_biases[j], slope);
  }
  return loss;
}

ELMO_MULTIVERSION double pass(const Pass<float>& p, int64_t begin, int64_t end) { return pass_of(p, begin, end); }
ELMO_MULTIVERSION double pass(const Pass<double>& p, int64_t begin, int64_t end) { return pass_of(p, begin, end); }

template <typename T>
Tables<T> tables(TensorList t) {
  return {t[0].mutable_data_ptr<T>(), t[1].mutable_data_ptr<T>(), t[2].mutable_data_ptr<T>(), t[3].mutable_data_ptr<T>()};
}

Tensor glove(
    const Tensor& rows, const Tensor& columns, const Tensor& values, TensorList weights, TensorList squares,
    double learning_rate, double x_max, double alpha) {
  const Arguments check("glove");
  check.need(weights.size() == 4 && squares.size() == 4, "weights and squares must be 4 tensors each");
  check.tensor("weights[0]", weights[0], kFloating, {kAny, kAny});
  const auto dtype = weights[0].scalar_type();
  const int64_t words = weights[0].size(0), dimension = weights[0].size(1);
  for (const TensorList list : {weights, squares}) {
    check.tensors("tables", list.slice(0, 2), dtype, {words, dimension});
    check.tensors("biases", list.slice(2), dtype, {words});
    for (const Tensor& table : list) check.contiguous("weights and squares", table);
  }
  check.tensor("values", values, dtype, {kAny});
  check.tensor("rows", rows, kInt, values.sizes());
  check.tensor("columns", columns, kInt, values.sizes());
  check.contiguous("rows", rows);
  check.contiguous("columns", columns);
  check.contiguous("values", values);
  check.ids("rows", rows, words);
  check.ids("columns", columns, words);
  const int64_t entries = rows.numel(), threads = std::clamp<int64_t>(entries / kGrain, 1, num_threads());
  std::vector<double> sums(threads);
  by_type(dtype, [&]<typename T>() {
    const Pass<T> p{
        rows.const_data_ptr<int32_t>(), columns.const_data_ptr<int32_t>(), values.const_data_ptr<T>(),
        tables<T>(weights), tables<T>(squares), dimension,
        static_cast<T>(learning_rate), static_cast<T>(x_max), static_cast<T>(alpha)};
    parallel_for(threads, 1, [&](int64_t from, int64_t to) {
      for (int64_t t = from; t < to; ++t) sums[t] = pass(p, entries * t / threads, entries * (t + 1) / threads);
    });
  });
  return number(std::accumulate(sums.begin(), sums.end(), 0.0), kDouble);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("glove", TORCH_BOX(&glove)); }

}  // namespace elmo_fast
