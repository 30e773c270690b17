// negative_sampling: what both passes do with a row of scores is ln(1 + e^x) and its slope σ(x), from one exponential. Forward: a chunk of
// scores, then one row at a time: hits out, the sum of ln(1 + e^s), its slopes where kept.
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/parallel.h"
#include "common/sampled_rows.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

template <typename T>
T softplus(T x) {
  return (x > 0 ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}

// σ(x).
template <typename T>
T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

constexpr int kLanes = 32, kSteps = 64;  // 64 factors of at most 2: no product leaves a float's range

template <typename T>
ELMO_INLINE T exponential_of(T x) {
  return x == -std::numeric_limits<T>::infinity() ? T(0) : exp_of(x < 0 ? x : -x);
}

template <typename T>
ELMO_INLINE T slope_of(T x, T e) {
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), and a sum of logarithms is the logarithm of a product: P = prod (1 + e) - 1 is carried, whose
// digits a small e does not lose, and the logarithm is taken once for kSteps factors.
template <typename T, bool keep>
ELMO_INLINE T block_sum(T* x, int64_t n) {
  T positive[kLanes] = {}, product[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const T each = x[i + j], e = exponential_of(each);
      positive[j] += each > 0 ? each : T(0);
      product[j] = product[j] + e * (T(1) + product[j]);
      if (keep) x[i + j] = slope_of(each, e);
    }
  }
  double sum = 0;
  for (; i < n; ++i) {
    const T each = x[i], e = exponential_of(each);
    sum += (each > 0 ? each : T(0)) + std::log1p(static_cast<double>(e));
    if (keep) x[i] = slope_of(each, e);
  }
  for (int j = 0; j < kLanes; ++j) sum += positive[j] + std::log1p(static_cast<double>(product[j]));
  return static_cast<T>(sum);
}

template <typename T, bool keep>
ELMO_MULTIVERSION T sum_loop(T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kLanes * kSteps) sum += block_sum<T, keep>(x + i, n - i < kLanes * kSteps ? n - i : kLanes * kSteps);
  return static_cast<T>(sum);
}

// x[n] <- σ(x).
template <typename T>
ELMO_MULTIVERSION void slopes_loop(T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = slope_of(x[i], exponential_of(x[i]));
}

// x[n] <- σ(x) (where `keep`, else left); returns the sum of ln(1 + e^x), to which -infinity adds nothing.
template <typename T>
T softplus_sum(T* x, int64_t n, bool keep) {
  return keep ? sum_loop<T, true>(x, n) : sum_loop<T, false>(x, n);
}

// negative_sampling forward: a chunk of scores, then one row at a time: hits out, the sum of ln(1 + e^s), its slopes where kept.

// scores[n, S] -> losses[n] and, with `keep`, slopes in the scores' place. d_true[n]: the slope to the target's score, -σ(-s).
template <typename T>
void finish_rows(
    const Tensor& scores, const Tensor& true_scores, const int64_t* targets, const AccidentalHits* hits, T share, bool keep,
    const Tensor& losses, const Tensor& d_true) {
  const int64_t samples = scores.size(1);
  T* data = scores.mutable_data_ptr<T>();
  const T* score = true_scores.const_data_ptr<T>();
  T* loss = losses.mutable_data_ptr<T>();
  T* slope = d_true.mutable_data_ptr<T>();
  parallel_for(scores.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      if (hits != nullptr) hits->each(targets[i], [&](int64_t s) { row[s] = -std::numeric_limits<T>::infinity(); });
      loss[i] = softplus(-score[i]) + share * softplus_sum<T>(row, samples, keep);
      slope[i] = -sigmoid(-score[i]);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> negative_sampling_forward(
    const Tensor& hidden_any, const Tensor& rows, const Tensor& offsets, const Tensor& ids_any, double share,
    bool count_hits, const Name& precision, int64_t chunk_bytes, bool keep) {
  check_samples(Arguments("negative_sampling"), hidden_any, rows, offsets, ids_any, chunk_bytes);
  const Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous();
  const int64_t count = hidden.size(0);
  Tensor losses = empty({count}, hidden.options()), d_true = empty({count}, hidden.options());
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, rows.size(0) - count);
  const auto finish = [&](int64_t i, const Tensor& scores, const Tensor& true_scores, bool keeps) {
    ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
      finish_rows<scalar_t>(
          scores, true_scores, ids.const_data_ptr<int64_t>() + i, count_hits ? nullptr : &hits, static_cast<scalar_t>(share), keeps,
          losses.narrow(0, i, scores.size(0)), d_true.narrow(0, i, scores.size(0)));
    });
  };
  Tensor slopes = logits_of_samples(hidden, rows, offsets, precision, chunk_bytes, keep, finish);
  return {losses, d_true, slopes};
}

// negative_sampling backward: slopes (kept, or computed again chunk by chunk), then two products.

// scores of some rows -> slopes, zero for accidental hits.
template <typename T>
void to_slopes(const Tensor& scores, const int64_t* targets, const AccidentalHits* hits) {
  const int64_t samples = scores.size(1);
  T* data = scores.mutable_data_ptr<T>();
  parallel_for(scores.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      slopes_loop<T>(row, samples);
      if (hits != nullptr) hits->each(targets[i], [&](int64_t s) { row[s] = T(0); });
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> negative_sampling_backward(
    const Tensor& grad, const Tensor& hidden_any, const Tensor& rows, const Tensor& offsets,
    const Tensor& ids_any, const Tensor& d_true, const Tensor& kept, double share, bool count_hits,
    const Name& precision, int64_t chunk_bytes) {
  const Arguments check("negative_sampling_backward");
  check_samples(check, hidden_any, rows, offsets, ids_any, chunk_bytes);
  check_saved(check, hidden_any, rows, {{"grad", grad}, {"d_true", d_true}}, "slopes", kept);
  const Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous();
  const int64_t count = hidden.size(0);
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, rows.size(0) - count);
  const auto again = [&](int64_t first, const Tensor& scores) {
    ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
      to_slopes<scalar_t>(scores, ids.const_data_ptr<int64_t>() + first, count_hits ? nullptr : &hits);
    });
  };
  return gradients_of_samples(
      grad.mul(share).contiguous(), d_true.mul(grad), hidden, rows, offsets, kept, precision, chunk_bytes, again);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("negative_sampling", ELMO_BOX(negative_sampling_forward));
  m.impl("negative_sampling_backward", ELMO_BOX(negative_sampling_backward));
}

}  // namespace elmo_fast
