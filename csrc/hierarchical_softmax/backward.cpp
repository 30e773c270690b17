// hierarchical_softmax backward: a row's gradient from the nodes on its path, a node's from the rows that passed it, in their order.

#include <algorithm>
#include <array>
#include <vector>

#include "common/parallel.h"
#include "hierarchical_softmax/rows.h"

namespace elmo_fast {
namespace {
using namespace hierarchical;

struct Step {
  int64_t node, place;  // place: row * longest + step, where its slope lies
};

// All steps of the batch, row by row; raises where one leaves the tree.
std::vector<Step> steps_of(const Tensor& targets, const Tensor& first, const Tensor& nodes, int64_t longest, int64_t limit) {
  const auto *target = targets.const_data_ptr<int64_t>(), *path = first.const_data_ptr<int64_t>(), *node = nodes.const_data_ptr<int64_t>();
  std::vector<Step> steps;
  for (int64_t i = 0; i < targets.numel(); ++i) {
    ELMO_CHECK_INDEX(target[i] >= 0 && target[i] < first.numel() - 1, "hierarchical_softmax_backward: target ", target[i], " is no word");
    const int64_t begin = path[target[i]], end = path[target[i] + 1];
    ELMO_CHECK_INDEX(
        begin >= 0 && end <= nodes.numel() && end - begin <= longest, "hierarchical_softmax_backward: the path of word ", target[i],
        " leaves the tree");
    for (int64_t j = begin; j < end; ++j) {
      ELMO_CHECK_INDEX(node[j] >= 0 && node[j] < limit, "hierarchical_softmax_backward: node ", node[j], " of ", limit);
      steps.push_back({node[j], i * longest + j - begin});
    }
  }
  return steps;
}

// Sorted by node, those of one node in the order of rows: a radix sort by digits of 11 bits.
std::vector<Step> by_node(std::vector<Step> steps, int64_t limit) {
  constexpr int kBits = 11;
  std::vector<Step> sorted(steps.size());
  for (int shift = 0; (limit - 1) >> shift > 0; shift += kBits) {
    std::array<int64_t, (1 << kBits) + 1> begin{};
    const auto digit = [&](const Step& step) { return step.node >> shift & ((1 << kBits) - 1); };
    for (const Step& step : steps) ++begin[digit(step) + 1];
    for (size_t d = 1; d < begin.size(); ++d) begin[d] += begin[d - 1];
    for (const Step& step : steps) sorted[begin[digit(step)]++] = step;
    steps.swap(sorted);
  }
  return steps;
}

// Where each distinct node's steps begin, and where the last end.
std::vector<int64_t> groups_of(const std::vector<Step>& steps) {
  std::vector<int64_t> begin;
  for (size_t i = 0; i < steps.size(); ++i)
    if (i == 0 || steps[i].node != steps[i - 1].node) begin.push_back(static_cast<int64_t>(i));
  begin.push_back(static_cast<int64_t>(steps.size()));
  return begin;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> hierarchical_softmax_backward(
    const Tensor& grad, const Tensor& hidden, const Tensor& targets_any, const Tensor& weight,
    const Tensor& slopes, const Tensor& first_any, const Tensor& nodes_any, const Name& precision, bool sparse) {
  const Arguments check("hierarchical_softmax_backward");
  check_paths(check, hidden, targets_any, weight, first_any, nodes_any);
  check.tensor("grad", grad, hidden.scalar_type(), {hidden.size(0)});
  check.tensor("slopes", slopes, hidden.scalar_type(), {hidden.size(0), kAny});
  const Rounding rounding = rounding_of(resolve_operand(precision, hidden.scalar_type()));
  const Tensor x = rounded_rows(hidden, rounding), targets = targets_any.contiguous();
  const Tensor first = first_any.contiguous(), nodes = nodes_any.contiguous();
  const Tensor weighted = slopes.mul(grad.unsqueeze(1)).contiguous();  // of each step, times g
  const Table table(weight);
  const int64_t count = x.size(0), size = x.size(1), longest = slopes.size(1);
  const auto *target = targets.const_data_ptr<int64_t>(), *path = first.const_data_ptr<int64_t>();
  const auto* node = nodes.const_data_ptr<int64_t>();
  const std::vector<Step> steps = by_node(steps_of(targets, first, nodes, longest, weight.size(0)), weight.size(0));
  const std::vector<int64_t> groups = groups_of(steps);
  const auto distinct = static_cast<int64_t>(groups.size()) - 1;
  Tensor d_hidden = zeros({count, size}, x.options()), ids = empty({sparse ? distinct : 0}, first.options());
  Tensor d_rows = zeros({sparse ? distinct : weight.size(0), size}, x.options());
  Tensor d_offsets = zeros({d_rows.size(0)}, x.options());
  ELMO_DISPATCH_FLOATING(x.scalar_type(), [&] {
    const auto *h = x.const_data_ptr<scalar_t>(), *slope = weighted.const_data_ptr<scalar_t>();
    auto *dh = d_hidden.mutable_data_ptr<scalar_t>(), *dw = d_rows.mutable_data_ptr<scalar_t>(), *db = d_offsets.mutable_data_ptr<scalar_t>();
    parallel_for(count, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = path[target[i]]; j < path[target[i] + 1]; ++j)
          add_scaled<scalar_t>(
              dh + i * size, slope[i * longest + j - path[target[i]]], table.row<scalar_t>(node[j]), size, rounding);
    });
    parallel_for(distinct, 8, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t row = sparse ? group : steps[groups[group]].node;
        if (sparse) ids.mutable_data_ptr<int64_t>()[group] = steps[groups[group]].node;
        for (int64_t k = groups[group]; k < groups[group + 1]; ++k) {
          const int64_t place = steps[k].place;
          add_scaled<scalar_t>(dw + row * size, slope[place], h + place / longest * size, size, Rounding::None);
          db[row] += slope[place];
        }
      }
    });
  });
  return {d_hidden, ids, d_rows, d_offsets};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("hierarchical_softmax_backward", ELMO_BOX(hierarchical_softmax_backward)); }

}  // namespace elmo_fast
