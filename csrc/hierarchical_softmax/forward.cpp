// hierarchical_softmax forward: a row's path from the root, one product of D at each node; the slopes are what backward needs.
// Floor: reading N · length rows of D, of which those near the root stay in cache.

#include <algorithm>
#include <cmath>

#include "common/parallel.h"
#include "hierarchical_softmax/rows.h"

namespace elmo_fast {
namespace {
using namespace hierarchical;

struct Paths {
  const int64_t *first, *nodes;
  const uint8_t* codes;
  int64_t words, steps, count, longest;  // words of the tree, steps of all paths, inner nodes, most steps of a path
};

// The loss of the row h[size] whose word is `target`; slopes[longest] <- d loss / d score of each step, zero past the path.
template <typename T>
T path_loss(const Paths& paths, int64_t target, const T* h, int64_t size, const Table& table, const T* bias, Rounding rounding, T* slopes) {
  ELMO_CHECK_INDEX(target >= 0 && target < paths.words, "hierarchical_softmax: target ", target, " is no word of the tree's ", paths.words);
  const int64_t begin = paths.first[target], length = paths.first[target + 1] - begin;
  ELMO_CHECK_INDEX(
      begin >= 0 && length >= 0 && length <= std::min(paths.longest, paths.steps - begin), "hierarchical_softmax: the path of word ",
      target, " has ", length, " steps");
  T loss = 0;
  for (int64_t j = 0; j < length; ++j) {
    const int64_t node = paths.nodes[begin + j];
    ELMO_CHECK_INDEX(node >= 0 && node < paths.count, "hierarchical_softmax: node ", node, " of a tree with ", paths.count, " inner nodes");
    const T sign = paths.codes[begin + j] == 0 ? T(1) : T(-1);
    const T score = sign * (dot<T>(h, table.row<T>(node), size, rounding) + bias[node]);
    const T e = std::exp(-std::abs(score));
    loss += (score < 0 ? -score : T(0)) + std::log1p(e);
    slopes[j] = -sign * (score < 0 ? T(1) : e) / (T(1) + e);
  }
  for (int64_t j = length; j < paths.longest; ++j) slopes[j] = 0;
  return loss;
}

std::tuple<Tensor, Tensor> hierarchical_softmax_forward(
    const Tensor& hidden, const Tensor& targets_any, const Tensor& weight, const Tensor& bias_any,
    const Tensor& first_any, const Tensor& nodes_any, const Tensor& codes_any, int64_t longest,
    const Name& precision, bool sparse) {
  const Arguments check("hierarchical_softmax");
  check_paths(check, hidden, targets_any, weight, first_any, nodes_any);
  check.tensor("bias", bias_any, hidden.scalar_type(), {weight.size(0)});
  check.tensor("codes", codes_any, kByte, nodes_any.sizes());
  check.need(longest >= 0, "longest must be at least 0; got ", longest);
  const Rounding rounding = rounding_of(resolve_operand(precision, hidden.scalar_type()));
  const Tensor x = rounded_rows(hidden, rounding), bias = bias_any.contiguous(), targets = targets_any.contiguous();
  const Tensor first = first_any.contiguous(), nodes = nodes_any.contiguous(), codes = codes_any.contiguous();
  const Table table(weight);
  const int64_t count = x.size(0), size = x.size(1);
  const Paths paths{
      first.const_data_ptr<int64_t>(), nodes.const_data_ptr<int64_t>(), codes.const_data_ptr<uint8_t>(),
      first.numel() - 1, nodes.numel(), weight.size(0), longest};
  Tensor losses = empty({count}, x.options()), slopes = empty({count, longest}, x.options());
  const auto* target = targets.const_data_ptr<int64_t>();
  ELMO_DISPATCH_FLOATING(x.scalar_type(), [&] {
    const auto* h = x.const_data_ptr<scalar_t>();
    const auto* b = bias.const_data_ptr<scalar_t>();
    auto* loss = losses.mutable_data_ptr<scalar_t>();
    auto* slope = slopes.mutable_data_ptr<scalar_t>();
    parallel_for(count, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        loss[i] = path_loss<scalar_t>(paths, target[i], h + i * size, size, table, b, rounding, slope + i * longest);
    });
  });
  return {losses, slopes};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("hierarchical_softmax", ELMO_BOX(hierarchical_softmax_forward)); }

}  // namespace elmo_fast
