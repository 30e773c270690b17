// hierarchical_softmax. Forward: a row's path from the root, one product of D at each node; backward needs the slopes. Floor: reading
// N · length rows of D; the rows near the root stay in cache.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "common/operand.h"
#include "common/parallel.h"
#include "common/radix_sort.h"
#include "common/simd.h"
#include "common/sums.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

// y += a w
template <typename T>
ELMO_MULTIVERSION void add_scaled(T* y, T a, const T* w, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * w[i];
}

// The words of the batch and their paths, as both passes take them: hidden [N, D] rounded, inner nodes' rows [n, D], a tree's first [V + 1] and
// nodes [steps].
struct Paths {
  const char* op;
  Tensor hidden, targets, first, nodes;
  Tensor table;  // inner nodes' rows, each contiguous
  Operand operand;
  int64_t longest;  // most steps of a path
  const int64_t *target, *begin, *node;

  Paths(
      const char* op, const Tensor& hidden_any, const Tensor& targets_any, const Tensor& weight, const Tensor& first_any,
      const Tensor& nodes_any, const Name& precision, int64_t longest)
      : op(op), longest(longest) {
    const Arguments check(op);
    check.tensor("hidden", hidden_any, kFloating, {kAny, kAny});
    check.tensor("targets", targets_any, kLong, {hidden_any.size(0)});
    check.tensor("weight", weight, hidden_any.scalar_type(), {kAny, hidden_any.size(1)});
    check.tensor("first", first_any, kLong, {kAny});
    check.tensor("nodes", nodes_any, kLong, {kAny});
    check.need(first_any.numel() > 0, "first must have V + 1 places; got none");
    check.need(longest >= 0, "longest must be at least 0; got ", longest);
    operand = resolve_operand(precision, hidden_any.scalar_type());
    hidden = rounded_values(hidden_any.contiguous(), operand);
    table = weight.size(1) < 2 || weight.stride(1) == 1 ? weight : weight.contiguous();
    targets = targets_any.contiguous(), first = first_any.contiguous(), nodes = nodes_any.contiguous();
    target = targets.const_data_ptr<int64_t>(), begin = first.const_data_ptr<int64_t>(), node = nodes.const_data_ptr<int64_t>();
  }

  // A node's row, rounded; `line` has room for it.
  template <typename T>
  const T* row(int64_t node, std::vector<T>& line) const {
    return rounded_row(table.const_data_ptr<T>() + node * table.stride(0), line.data(), table.size(1), operand);
  }
  // The first step of row i's path, and the step after its last; raises where one leaves the tree.
  std::pair<int64_t, int64_t> path(int64_t i) const {
    const int64_t words = first.numel() - 1, inner = table.size(0);
    ELMO_CHECK_INDEX(target[i] >= 0 && target[i] < words, op, ": target ", target[i], " is no word of the tree's ", words);
    const int64_t from = begin[target[i]], to = begin[target[i] + 1];
    ELMO_CHECK_INDEX(
        from >= 0 && to >= from && to <= nodes.numel() && to - from <= longest, op, ": the path of word ", target[i], " leaves the tree");
    for (int64_t j = from; j < to; ++j)
      ELMO_CHECK_INDEX(node[j] >= 0 && node[j] < inner, op, ": node ", node[j], " of a tree with ", inner, " inner nodes");
    return {from, to};
  }
};

// The loss of row i; slopes[longest] <- d loss / d score of each step, zero past the path.
template <typename T>
T path_loss(const Paths& p, int64_t i, const T* h, const T* bias, const uint8_t* codes, T* slopes, std::vector<T>& line) {
  const auto [begin, end] = p.path(i);
  T loss = 0;
  for (int64_t j = begin; j < end; ++j) {
    const T sign = codes[j] == 0 ? T(1) : T(-1);
    const T score = sign * (dot(h, p.row(p.node[j], line), static_cast<int64_t>(line.size())) + bias[p.node[j]]);
    const T e = std::exp(-std::abs(score));
    loss += (score < 0 ? -score : T(0)) + std::log1p(e);
    *slopes++ = -sign * (score < 0 ? T(1) : e) / (T(1) + e);
  }
  std::fill_n(slopes, p.longest - (end - begin), T(0));
  return loss;
}

std::tuple<Tensor, std::vector<Tensor>> hierarchical_softmax_forward(
    const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias_any, const Tensor& first, const Tensor& nodes,
    const Tensor& codes_any, int64_t longest, const Name& precision, bool /*sparse*/, bool save) {
  const Arguments check("hierarchical_softmax");
  const Paths p("hierarchical_softmax", hidden, targets, weight, first, nodes, precision, longest);
  check.tensor("bias", bias_any, hidden.scalar_type(), {weight.size(0)});
  check.tensor("codes", codes_any, kByte, nodes.sizes());
  const Tensor bias = bias_any.contiguous(), codes = codes_any.contiguous();
  const int64_t count = hidden.size(0), size = hidden.size(1);
  const Tensor losses = empty({count}, hidden.scalar_type()), slopes = empty({count, longest}, hidden.scalar_type());
  by_type(hidden.scalar_type(), [&]<typename T>() {
    const T *h = p.hidden.const_data_ptr<T>(), *b = bias.const_data_ptr<T>();
    T *loss = losses.mutable_data_ptr<T>(), *slope = slopes.mutable_data_ptr<T>();
    const auto* code = codes.const_data_ptr<uint8_t>();
    parallel_for(count, 8, [&](int64_t begin, int64_t end) {
      std::vector<T> line(size);
      for (int64_t i = begin; i < end; ++i) loss[i] = path_loss<T>(p, i, h + i * size, b, code, slope + i * longest, line);
    });
  });
  return {losses, std::vector<Tensor>(save ? 1 : 0, slopes)};
}

// Backward: a row's gradient from the nodes on its path, a node's from the rows that passed it, in their order.

struct Step {
  int64_t node, place;  // place: index of its slope, row * longest + step
};

// All steps of the batch, row by row.
std::vector<Step> steps_of(const Paths& p) {
  std::vector<Step> steps;
  for (int64_t i = 0; i < p.targets.numel(); ++i) {
    const auto [begin, end] = p.path(i);
    for (int64_t j = begin; j < end; ++j) steps.push_back({p.node[j], i * p.longest + j - begin});
  }
  return steps;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> hierarchical_softmax_backward(
    const Tensor& grad, TensorList saved, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& first,
    const Tensor& nodes, const Name& precision, bool sparse) {
  const Arguments check("hierarchical_softmax_backward");
  check.saved(saved, 1);
  const Tensor slopes = saved[0];
  check.tensor("slopes", slopes, hidden.scalar_type(), {kAny, kAny});
  const int64_t longest = slopes.size(1);
  const Paths p("hierarchical_softmax_backward", hidden, targets, weight, first, nodes, precision, longest);
  const int64_t count = hidden.size(0), size = hidden.size(1), inner = weight.size(0);
  check.tensor("grad", grad, hidden.scalar_type(), {count});
  check.tensor("slopes", slopes, hidden.scalar_type(), {count, longest});
  const Tensor weighted = slopes.mul(grad.contiguous().view({count, 1})).contiguous();  // of each step, times g
  std::vector<Step> steps = steps_of(p);
  radix_sort(steps, std::bit_width(static_cast<uint64_t>(inner)), [](const Step& step) { return step.node; });
  std::vector<int64_t> groups;  // begins of each distinct node's steps, and the end of the last
  for (size_t i = 0; i <= steps.size(); ++i)
    if (i == 0 || i == steps.size() || steps[i].node != steps[i - 1].node) groups.push_back(static_cast<int64_t>(i));
  const auto distinct = static_cast<int64_t>(groups.size()) - 1, held = sparse ? distinct : inner;
  const Tensor d_hidden = zeros({count, size}, hidden.scalar_type()), ids = empty({sparse ? distinct : 0}, first.scalar_type());
  const Tensor d_rows = zeros({held, size}, hidden.scalar_type()), d_offsets = zeros({held}, hidden.scalar_type());
  by_type(hidden.scalar_type(), [&]<typename T>() {
    const T *h = p.hidden.const_data_ptr<T>(), *slope = weighted.const_data_ptr<T>();
    T *dh = d_hidden.mutable_data_ptr<T>(), *dw = d_rows.mutable_data_ptr<T>(), *db = d_offsets.mutable_data_ptr<T>();
    parallel_for(count, 8, [&](int64_t begin, int64_t end) {
      std::vector<T> line(size);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = p.begin[p.target[i]], to = p.begin[p.target[i] + 1];
        for (int64_t j = from; j < to; ++j) add_scaled(dh + i * size, slope[i * longest + j - from], p.row(p.node[j], line), size);
      }
    });
    parallel_for(distinct, 8, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t node = steps[groups[group]].node, row = sparse ? group : node;
        if (sparse) ids.mutable_data_ptr<int64_t>()[group] = node;
        for (int64_t k = groups[group]; k < groups[group + 1]; ++k) {
          const int64_t place = steps[k].place;
          add_scaled(dw + row * size, slope[place], h + place / longest * size, size);
          db[row] += slope[place];
        }
      }
    });
  });
  return {d_hidden, ids, d_rows, d_offsets};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("hierarchical_softmax", TORCH_BOX(&hierarchical_softmax_forward));
  m.impl("hierarchical_softmax_backward", TORCH_BOX(&hierarchical_softmax_backward));
}

}  // namespace elmo_fast
