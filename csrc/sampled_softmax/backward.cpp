// sampled_softmax backward: probabilities (kept, or computed again chunk by chunk), then two products.
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>

#include "common/simd.h"
#include "sampled_softmax/products.h"

namespace elmo_fast {
namespace {
using namespace sampled_softmax;

template <typename T>
ELMO_MULTIVERSION void exponentials(T* x, int64_t n, T log_sum) {
  for (int64_t i = 0; i < n; ++i) x[i] = exp_of(x[i] - log_sum);
}

// logits of some rows -> probabilities, zero for accidental hits.
template <typename T>
void to_probabilities(const at::Tensor& logits, const at::Tensor& log_sums, const int64_t* targets, const AccidentalHits& hits) {
  const int64_t samples = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  const T* log_sum = log_sums.const_data_ptr<T>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * samples;
      exponentials<T>(row, samples, log_sum[i]);
      hits.each(targets[i], [&](int64_t s) { row[s] = T(0); });
    }
  });
}

// The power of two just above the largest |g|, so that g / scale fits every operand; 1 where there is none.
double scale_of(const at::Tensor& grad) {
  const double largest = grad.abs().max().item<double>();
  return std::isfinite(largest) && largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1.0;
}

// Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
constexpr double kLift = 16384.0;

std::tuple<at::Tensor, at::Tensor, at::Tensor> sampled_softmax_backward(
    const at::Tensor& grad_any, const at::Tensor& hidden_any, const at::Tensor& rows, const at::Tensor& offsets,
    const at::Tensor& ids_any, const at::Tensor& losses, const at::Tensor& log_sums, const at::Tensor& probabilities,
    const std::string& precision, int64_t chunk_bytes) {
  const at::Tensor hidden = hidden_any.contiguous(), ids = ids_any.contiguous(), grad = grad_any.contiguous();
  const int64_t count = hidden.size(0), samples = rows.size(0) - count;
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t step = rows_per_chunk(count, samples, hidden.element_size(), chunk_bytes);
  at::Tensor d_hidden = at::empty_like(hidden), d_rows = at::empty(rows.sizes(), rows.options());
  at::Tensor d_offsets = at::empty(offsets.sizes(), offsets.options());
  if (count == 0) return {d_hidden, d_rows.zero_(), d_offsets.zero_()};

  const at::Tensor d_true = losses.neg().expm1_().mul_(grad);  // p - 1 of the target, times g
  const at::Tensor values = rounded_values(hidden, operand);
  at::Tensor d_true_rows = d_rows.narrow(0, 0, count), d_sample_rows = d_rows.narrow(0, count, samples);
  at::mul_out(d_true_rows, values, d_true.unsqueeze(1));
  d_offsets.narrow(0, 0, count).copy_(d_true);
  at::Tensor d_sample_offsets = d_offsets.narrow(0, count, samples).zero_();

  const at::Tensor sample_rows = rows.narrow(0, count, samples);
  const at::Tensor true_rows = rounded_values(rows.narrow(0, 0, count), operand);
  const at::Tensor sample_offsets = offsets.narrow(0, count, samples).contiguous();
  const bool kept = probabilities.size(0) == count;
  const RightOperand logits_of(sample_rows.t(), kept ? Operand::Float32 : operand), hidden_of(sample_rows, operand);
  const AccidentalHits hits(ids.const_data_ptr<int64_t>() + count, samples);
  const at::Tensor scratch = kept ? probabilities : at::empty({step, samples}, hidden.options());
  const double lift = exact(operand) ? 1.0 : kLift, scale = exact(operand) ? 1.0 : scale_of(grad);
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    const at::Tensor g = grad.narrow(0, i, n), p = scratch.narrow(0, 0, n);
    if (!kept) {
      logits_of.multiply(hidden.narrow(0, i, n), p, false, sample_offsets);
      AT_DISPATCH_FLOATING_TYPES(hidden.scalar_type(), "sampled_softmax_backward", [&] {
        to_probabilities<scalar_t>(p, log_sums.narrow(0, i, n), ids.const_data_ptr<int64_t>() + i, hits);
      });
    }
    d_sample_offsets.addmv_(p.t(), g);
    const at::Tensor lifted = exact(operand) ? p : p.mul(lift);
    at::Tensor d = d_hidden.narrow(0, i, n);
    hidden_of.multiply(lifted, d, false);
    d.mul_(g.div(lift).unsqueeze(1)).addcmul_(d_true.narrow(0, i, n).unsqueeze(1), true_rows.narrow(0, i, n));
    const RightOperand weighted(values.narrow(0, i, n).mul(g.div(scale).unsqueeze(1)), operand);
    weighted.multiply(lifted.t(), d_sample_rows, i > 0);
  }
  if (!exact(operand)) d_sample_rows.mul_(scale / lift);
  return {d_hidden, d_rows, d_offsets};
}

}  // namespace

TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("sampled_softmax_backward", sampled_softmax_backward); }

}  // namespace elmo_fast
