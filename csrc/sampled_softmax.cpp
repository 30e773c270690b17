// sampled_softmax forward: a chunk of logits, then one row at a time: hits out, largest, sum of exponentials, loss.
#include <cmath>
#include <limits>

#include "common/parallel.h"
#include "common/sums.h"
#include "common/sampled_rows.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

// logits[S] of one row -> its loss, largest logit and log-sum-exp relative to that; with `keep`, the logits become probabilities.
template <typename T>
void finish_row(T* logits, int64_t samples, T true_logit, bool keep, T* loss, T* log_sum) {
  const T largest = largest_of<T>(logits, samples, true_logit);
  const T sum = exponentials<T>(logits, samples, largest);
  const LogSum<T> found = log_sum_of<T>(true_logit, largest, sum);
  *loss = found.loss;
  log_sum[0] = largest;
  log_sum[1] = found.log_sum;
  if (keep) scale<T>(logits, samples, T(1) / (sum + std::exp(true_logit - largest)));
}

template <typename T>
void finish_rows(
    const Tensor& logits, const Tensor& true_logits, const int64_t* targets, const AccidentalHits& hits, bool keep,
    T* losses, T* log_sums) {
  const int64_t samples = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  const T* true_data = true_logits.const_data_ptr<T>();
  parallel_for(logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      hits.each(targets[i], [&](int64_t s) { row[s] = -std::numeric_limits<T>::infinity(); });
      finish_row<T>(row, samples, true_data[i], keep, losses + i, log_sums + 2 * i);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> sampled_softmax_forward(
    const Tensor& hidden_any, const Tensor& rows, const Tensor& offsets, const Tensor& ids_any,
    const Name& precision, int64_t chunk_bytes, bool keep) {
  check_samples(Arguments("sampled_softmax"), hidden_any, rows, offsets, ids_any, chunk_bytes);
  const Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous();
  const int64_t count = hidden.size(0);
  Tensor losses = empty({count}, hidden.options()), log_sums = empty({count, 2}, hidden.options());
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, rows.size(0) - count);
  const auto finish = [&](int64_t i, const Tensor& logits, const Tensor& true_logits, bool keeps) {
    ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
      finish_rows<scalar_t>(
          logits, true_logits, ids.const_data_ptr<int64_t>() + i, hits, keeps, losses.mutable_data_ptr<scalar_t>() + i,
          log_sums.mutable_data_ptr<scalar_t>() + 2 * i);
    });
  };
  Tensor probabilities = logits_of_samples(hidden, rows, offsets, precision, chunk_bytes, keep, finish);
  return {losses, log_sums, probabilities};
}

// sampled_softmax backward: probabilities (kept, or computed again chunk by chunk), then two products.

// logits of some rows -> probabilities, zero for accidental hits.
template <typename T>
void to_probabilities(const Tensor& logits, const T* log_sums, const int64_t* targets, const AccidentalHits& hits) {
  const int64_t samples = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  parallel_for(logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      probabilities<T>(row, samples, log_sums[2 * i], log_sums[2 * i + 1]);
      hits.each(targets[i], [&](int64_t s) { row[s] = T(0); });
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> sampled_softmax_backward(
    const Tensor& grad_any, const Tensor& hidden_any, const Tensor& rows, const Tensor& offsets,
    const Tensor& ids_any, const Tensor& losses, const Tensor& log_sums_any, const Tensor& kept,
    const Name& precision, int64_t chunk_bytes) {
  const Arguments check("sampled_softmax_backward");
  check_samples(check, hidden_any, rows, offsets, ids_any, chunk_bytes);
  check_saved(check, hidden_any, rows, {{"grad", grad_any}, {"losses", losses}}, "probabilities", kept);
  check.tensor("log_sums", log_sums_any, hidden_any.scalar_type(), {hidden_any.size(0), 2});
  const Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous(), grad = grad_any.contiguous();
  const Tensor log_sums = log_sums_any.contiguous();
  const int64_t count = hidden.size(0);
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, rows.size(0) - count);
  const Tensor d_true = expm1(neg(losses)).mul(grad);  // p - 1 of the target, times g
  const auto to_slopes = [&](int64_t first, const Tensor& logits) {
    ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
      to_probabilities<scalar_t>(logits, log_sums.const_data_ptr<scalar_t>() + 2 * first, ids.const_data_ptr<int64_t>() + first, hits);
    });
  };
  return gradients_of_samples(grad, d_true, hidden, rows, offsets, kept, precision, chunk_bytes, to_slopes);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("sampled_softmax", ELMO_BOX(sampled_softmax_forward));
  m.impl("sampled_softmax_backward", ELMO_BOX(sampled_softmax_backward));
}

}  // namespace elmo_fast
