// full_softmax. Forward: blocks of words against blocks of rows; each row keeps its largest logit and a sum of exponentials, in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/checks.h"
#include "common/parallel.h"
#include "common/sums.h"
#include "common/sampled_rows.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

constexpr int64_t kRows = 1024;

// Raises unless these are hidden [N, D], targets [N], a table [V, D] of at least a word, its bias, and a bound above 0.
void check_table(
    const Arguments& check, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias,
    int64_t chunk_bytes) {
  check.floating("hidden", hidden, {kAny, kAny});
  check.tensor("targets", targets, kLong, {hidden.size(0)});
  check.tensor("weight", weight, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.tensor("bias", bias, hidden.scalar_type(), {weight.size(0)});
  check.need(weight.size(0) > 0, "weight must hold at least one word; got none");
  check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
  check.ids("targets", targets, weight.size(0));
}

struct Blocks {
  Blocks(int64_t count, int64_t all, int64_t item_bytes, int64_t chunk_bytes)
      : rows(std::clamp<int64_t>(std::min(count, chunk_bytes / item_bytes), 1, kRows)),
        words(std::clamp<int64_t>(chunk_bytes / (item_bytes * rows), 1, all)) {}
  int64_t rows, words;
};

// full_softmax forward: blocks of words against blocks of rows; each row keeps its largest logit and a sum of exponentials, in double.

struct Sum {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;  // sum of exp(logit - largest), the target left out
};

template <typename T>
void add_block(const Tensor& logits, const int64_t* targets, int64_t word, Sum* sums) {
  const int64_t words = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  parallel_for(logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * words;
      if (targets[i] >= word && targets[i] < word + words) row[targets[i] - word] = -std::numeric_limits<T>::infinity();
      const T largest = largest_of<T>(row, words, static_cast<T>(sums[i].largest));
      if (largest == -std::numeric_limits<T>::infinity()) {  // the target alone, or NaN, which no comparison finds
        for (int64_t j = 0; j < words; ++j) {
          if (std::isnan(row[j])) sums[i].sum = std::numeric_limits<double>::quiet_NaN();
        }
        continue;
      }
      const double before = sums[i].sum * std::exp(sums[i].largest - static_cast<double>(largest));
      sums[i] = {static_cast<double>(largest), before + static_cast<double>(exponentials<T>(row, words, largest))};
    }
  });
}

template <typename T>
void finish(const std::vector<Sum>& sums, const Tensor& true_logits, const Tensor& losses, const Tensor& log_sums) {
  const T* logit = true_logits.const_data_ptr<T>();
  for (size_t i = 0; i < sums.size(); ++i) {
    const double t = logit[i], largest = std::max(t, sums[i].largest);
    const LogSum<double> found = log_sum_of<double>(t, largest, sums[i].sum * std::exp(sums[i].largest - largest));
    losses.mutable_data_ptr<T>()[i] = static_cast<T>(found.loss);
    T* log_sum = log_sums.mutable_data_ptr<T>() + 2 * i;
    log_sum[0] = static_cast<T>(largest);  // exact: one of the logits
    log_sum[1] = static_cast<T>(found.log_sum);
  }
}

std::tuple<Tensor, Tensor> full_softmax_forward(
    const Tensor& hidden_any, const Tensor& targets_any, const Tensor& weight, const Tensor& bias_any,
    const Name& precision, int64_t chunk_bytes) {
  check_table(Arguments("full_softmax"), hidden_any, targets_any, weight, bias_any, chunk_bytes);
  const Tensor hidden = hidden_any.contiguous(), targets = targets_any.contiguous(), bias = bias_any.contiguous();
  const int64_t count = hidden.size(0), words = weight.size(0);
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const Blocks blocks(count, words, hidden.element_size(), chunk_bytes);
  Tensor losses = empty({count}, hidden.options()), log_sums = empty({count, 2}, hidden.options());
  if (count == 0) return {losses, log_sums};
  const Tensor true_logits = rounded_values(hidden, operand)
                                     .mul(rounded_values(index_select(weight, targets), operand))
                                     .sum(1)
                                     .add_(index_select(bias, targets));
  std::vector<Sum> sums(count);
  const Tensor scratch = empty({blocks.rows * blocks.words}, hidden.options());
  for (int64_t j = 0; j < words; j += blocks.words) {
    const int64_t w = std::min(blocks.words, words - j);
    const RightOperand rows(weight.narrow(0, j, w).t(), operand);
    for (int64_t i = 0; i < count; i += blocks.rows) {
      const int64_t n = std::min(blocks.rows, count - i);
      const Tensor logits = scratch.narrow(0, 0, n * w).view({n, w});
      rows.multiply(hidden.narrow(0, i, n), logits, false, bias.narrow(0, j, w));
      ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
        add_block<scalar_t>(logits, targets.const_data_ptr<int64_t>() + i, j, sums.data() + i);
      });
    }
  }
  ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] { finish<scalar_t>(sums, true_logits, losses, log_sums); });
  return {losses, log_sums};
}

// full_softmax backward: logits again, block by block, their probabilities, and two products into the gradients' own memory.

// logits -> probabilities, the target's zero: its slope is added at the end, exactly.
template <typename T>
void to_probabilities(const Tensor& logits, const T* log_sums, const int64_t* targets, int64_t word) {
  const int64_t words = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  parallel_for(logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      probabilities<T>(data + i * words, words, log_sums[2 * i], log_sums[2 * i + 1]);
      if (targets[i] >= word && targets[i] < word + words) data[i * words + targets[i] - word] = T(0);
    }
  });
}

// A target's own gradient, to its row and its bias, in the order of the batch.
template <typename T>
void add_true_rows(const Tensor& rows, const Tensor& d_true, const int64_t* targets, const Tensor& d_weight, const Tensor& d_bias) {
  const int64_t size = rows.size(1);
  const T *row = rows.const_data_ptr<T>(), *slope = d_true.const_data_ptr<T>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    T* to = d_weight.mutable_data_ptr<T>() + targets[i] * size;
    for (int64_t j = 0; j < size; ++j) to[j] += row[i * size + j];
    d_bias.mutable_data_ptr<double>()[targets[i]] += slope[i];
  }
}

std::tuple<Tensor, Tensor, Tensor> full_softmax_backward(
    const Tensor& grad_any, const Tensor& hidden_any, const Tensor& targets_any, const Tensor& weight,
    const Tensor& bias_any, const Tensor& losses, const Tensor& log_sums, const Name& precision,
    int64_t chunk_bytes) {
  const Arguments check("full_softmax_backward");
  check_table(check, hidden_any, targets_any, weight, bias_any, chunk_bytes);
  check.tensor("grad", grad_any, hidden_any.scalar_type(), {hidden_any.size(0)});
  check.tensor("losses", losses, hidden_any.scalar_type(), {hidden_any.size(0)});
  check.tensor("log_sums", log_sums, hidden_any.scalar_type(), {hidden_any.size(0), 2});
  check.contiguous("log_sums", log_sums);
  const Tensor grad = grad_any.contiguous(), hidden = hidden_any.contiguous();
  const Tensor targets = targets_any.contiguous(), bias = bias_any.contiguous();
  const int64_t count = hidden.size(0), words = weight.size(0);
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const Blocks blocks(count, words, hidden.element_size(), chunk_bytes);
  Tensor d_hidden = empty_like(hidden), d_weight = empty(weight.sizes(), hidden.options());
  Tensor d_bias = zeros({words}, hidden.options().dtype(kDouble));
  if (count == 0) return {d_hidden, d_weight.zero_(), d_bias.to(hidden.scalar_type())};
  const Tensor values = rounded_values(hidden, operand), d_true = expm1(neg(losses)).mul(grad);
  const Tensor scratch = empty({blocks.rows * blocks.words}, hidden.options());
  const Gradients gradients(grad, operand);
  for (int64_t j = 0; j < words; j += blocks.words) {
    const int64_t w = std::min(blocks.words, words - j);
    const Tensor rows = weight.narrow(0, j, w);
    const RightOperand logits_of(rows.t(), operand), hidden_of(rows, operand);
    for (int64_t i = 0; i < count; i += blocks.rows) {
      const int64_t n = std::min(blocks.rows, count - i);
      const Tensor p = scratch.narrow(0, 0, n * w).view({n, w});
      logits_of.multiply(hidden.narrow(0, i, n), p, false, bias.narrow(0, j, w));
      ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
        to_probabilities<scalar_t>(p, log_sums.const_data_ptr<scalar_t>() + 2 * i, targets.const_data_ptr<int64_t>() + i, j);
      });
      gradients.add(
          p, grad.narrow(0, i, n), values.narrow(0, i, n), hidden_of, d_hidden.narrow(0, i, n), j > 0, d_weight.narrow(0, j, w), i > 0,
          d_bias.narrow(0, j, w));
    }
  }
  gradients.finish(grad, d_true, rounded_values(index_select(weight, targets), operand), d_hidden, d_weight);
  ELMO_DISPATCH_FLOATING(hidden.scalar_type(), [&] {
    add_true_rows<scalar_t>(values.mul(d_true.unsqueeze(1)), d_true, targets.const_data_ptr<int64_t>(), d_weight, d_bias);
  });
  return {d_hidden, d_weight, d_bias.to(hidden.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("full_softmax", ELMO_BOX(full_softmax_forward));
  m.impl("full_softmax_backward", ELMO_BOX(full_softmax_backward));
}

}  // namespace elmo_fast
