// full_softmax forward: blocks of words against blocks of rows; each row keeps its largest logit and a sum of exponentials, in double.

#include <cmath>
#include <limits>
#include <vector>

#include "common/parallel.h"
#include "common/row_sums.h"
#include "common/sampled_rows.h"
#include "full_softmax/blocks.h"

namespace elmo_fast {
namespace {
using namespace sampled_rows;

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
  full_softmax::check_table(Arguments("full_softmax"), hidden_any, targets_any, weight, bias_any, chunk_bytes);
  const Tensor hidden = hidden_any.contiguous(), targets = targets_any.contiguous(), bias = bias_any.contiguous();
  const int64_t count = hidden.size(0), words = weight.size(0);
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const full_softmax::Blocks blocks(count, words, hidden.element_size(), chunk_bytes);
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

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("full_softmax", ELMO_BOX(full_softmax_forward)); }

}  // namespace elmo_fast
