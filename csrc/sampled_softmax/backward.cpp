// sampled_softmax backward: probabilities (kept, or computed again chunk by chunk), then two products.

#include "common/parallel.h"
#include "common/row_sums.h"
#include "common/sampled_rows.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

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

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("sampled_softmax_backward", ELMO_BOX(sampled_softmax_backward)); }

}  // namespace elmo_fast
