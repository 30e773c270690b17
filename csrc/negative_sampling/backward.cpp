// negative_sampling backward: slopes (kept, or computed again chunk by chunk), then two products.

#include "common/parallel.h"
#include "common/sampled_rows.h"
#include "negative_sampling/slopes.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

// scores of some rows -> slopes, zero for accidental hits.
template <typename T>
void to_slopes(const Tensor& scores, const int64_t* targets, const AccidentalHits* hits) {
  const int64_t samples = scores.size(1);
  T* data = scores.mutable_data_ptr<T>();
  parallel_for(scores.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      negative_sampling::slopes<T>(row, samples);
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

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("negative_sampling_backward", ELMO_BOX(negative_sampling_backward)); }

}  // namespace elmo_fast
