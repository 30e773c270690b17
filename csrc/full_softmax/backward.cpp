// full_softmax backward: logits again, block by block, their probabilities, and two products into the gradients' own memory.
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "common/row_sums.h"
#include "common/sampled_rows.h"
#include "full_softmax/blocks.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

// logits -> probabilities, the target's zero: its slope is added at the end, exactly.
template <typename T>
void to_probabilities(const at::Tensor& logits, const at::Tensor& log_sums, const int64_t* targets, int64_t word) {
  const int64_t words = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  const T* log_sum = log_sums.const_data_ptr<T>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      probabilities<T>(data + i * words, words, log_sum[i]);
      if (targets[i] >= word && targets[i] < word + words) data[i * words + targets[i] - word] = T(0);
    }
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> full_softmax_backward(
    const at::Tensor& grad_any, const at::Tensor& hidden_any, const at::Tensor& targets_any, const at::Tensor& weight,
    const at::Tensor& bias_any, const at::Tensor& losses, const at::Tensor& log_sums, const std::string& precision,
    int64_t chunk_bytes) {
  const Arguments check("full_softmax_backward");
  full_softmax::check_table(check, hidden_any, targets_any, weight, bias_any, chunk_bytes);
  check.tensor("grad", grad_any, hidden_any.scalar_type(), {hidden_any.size(0)});
  check.tensor("losses", losses, hidden_any.scalar_type(), {hidden_any.size(0)});
  check.tensor("log_sums", log_sums, hidden_any.scalar_type(), {hidden_any.size(0)});
  check.contiguous("log_sums", log_sums);
  const at::Tensor grad = grad_any.contiguous(), hidden = hidden_any.contiguous();
  const at::Tensor targets = targets_any.contiguous(), bias = bias_any.contiguous();
  const int64_t count = hidden.size(0), words = weight.size(0);
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const full_softmax::Blocks blocks(count, words, hidden.element_size(), chunk_bytes);
  at::Tensor d_hidden = at::empty_like(hidden), d_weight = at::empty(weight.sizes(), hidden.options());
  at::Tensor d_bias = at::zeros({words}, hidden.options().dtype(at::kDouble));
  if (count == 0) return {d_hidden, d_weight.zero_(), d_bias.to(hidden.scalar_type())};
  const at::Tensor values = rounded_values(hidden, operand), d_true = losses.neg().expm1_().mul_(grad);
  const at::Tensor scratch = at::empty({blocks.rows * blocks.words}, hidden.options());
  const Gradients gradients(grad, operand);
  for (int64_t j = 0; j < words; j += blocks.words) {
    const int64_t w = std::min(blocks.words, words - j);
    const at::Tensor rows = weight.narrow(0, j, w);
    const RightOperand logits_of(rows.t(), operand), hidden_of(rows, operand);
    for (int64_t i = 0; i < count; i += blocks.rows) {
      const int64_t n = std::min(blocks.rows, count - i);
      const at::Tensor p = scratch.narrow(0, 0, n * w).view({n, w});
      logits_of.multiply(hidden.narrow(0, i, n), p, false, bias.narrow(0, j, w));
      AT_DISPATCH_FLOATING_TYPES(hidden.scalar_type(), "full_softmax_backward", [&] {
        to_probabilities<scalar_t>(p, log_sums.narrow(0, i, n), targets.const_data_ptr<int64_t>() + i, j);
      });
      gradients.add(
          p, grad.narrow(0, i, n), values.narrow(0, i, n), hidden_of, d_hidden.narrow(0, i, n), j > 0, d_weight.narrow(0, j, w), i > 0,
          d_bias.narrow(0, j, w));
    }
  }
  gradients.finish(grad, d_true, rounded_values(weight.index_select(0, targets), operand), d_hidden, d_weight);
  d_weight.index_add_(0, targets, values.mul(d_true.unsqueeze(1)));
  d_bias.index_add_(0, targets, d_true.to(at::kDouble));
  return {d_hidden, d_weight, d_bias.to(hidden.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("full_softmax_backward", full_softmax_backward); }

}  // namespace elmo_fast
