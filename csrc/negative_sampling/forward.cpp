// negative_sampling forward: a chunk of scores, then one row at a time: hits out, the sum of ln(1 + e^s), its slopes where kept.

#include <limits>

#include "common/parallel.h"
#include "common/sampled_rows.h"
#include "negative_sampling/slopes.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

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
      loss[i] = negative_sampling::softplus(-score[i]) + share * negative_sampling::softplus_sum<T>(row, samples, keep);
      slope[i] = -negative_sampling::sigmoid(-score[i]);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> negative_sampling_forward(
    const Tensor& hidden_any, const Tensor& rows, const Tensor& offsets, const Tensor& ids_any, double share,
    bool count_hits, const Name& precision, int64_t chunk_bytes, bool keep) {
  check_samples(Arguments("negative_sampling"), hidden_any, rows, offsets, ids_any, chunk_bytes);
  const Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous();
  const int64_t count = hidden.size(0), samples = rows.size(0) - count;
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t step = rows_per_chunk(count, samples, hidden.element_size(), chunk_bytes);
  const bool kept = keep && count <= step;
  Tensor losses = empty({count}, hidden.options()), d_true = empty({count}, hidden.options());
  Tensor slopes = empty({kept ? count : 0, samples}, hidden.options());
  if (count == 0) return {losses, d_true, slopes};
  const Tensor true_rows = rounded_values(rows.narrow(0, 0, count), operand);
  const Tensor true_scores = rounded_values(hidden, operand).mul(true_rows).sum(1).add_(offsets.narrow(0, 0, count));
  const Tensor sample_offsets = offsets.narrow(0, count, samples).contiguous();
  const RightOperand sample_rows(rows.narrow(0, count, samples).t(), operand);
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, samples);
  const Tensor scratch = kept ? slopes : empty({step, samples}, hidden.options());
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    const Tensor scores = scratch.narrow(0, 0, n);
    sample_rows.multiply(hidden.narrow(0, i, n), scores, false, sample_offsets);
    ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
      finish_rows<scalar_t>(
          scores, true_scores.narrow(0, i, n), ids.const_data_ptr<int64_t>() + i, count_hits ? nullptr : &hits,
          static_cast<scalar_t>(share), kept, losses.narrow(0, i, n), d_true.narrow(0, i, n));
    });
  }
  return {losses, d_true, slopes};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("negative_sampling", ELMO_BOX(negative_sampling_forward)); }

}  // namespace elmo_fast
