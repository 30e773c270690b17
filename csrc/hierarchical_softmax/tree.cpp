// Huffman's tree by two queues: the words by rising count, and the joined trees, which come in rising order by themselves.

#include <vector>

#include "common/checks.h"

namespace elmo_fast {
namespace {

std::tuple<Tensor, Tensor, Tensor> huffman_tree(const Tensor& counts_any, const Tensor& order_any) {
  const Arguments check("huffman_tree");
  check.tensor("counts", counts_any, kLong, {kAny});
  check.need(counts_any.numel() > 0, "counts must hold at least one word; got none");
  check.tensor("order", order_any, kLong, counts_any.sizes());
  check.ids("order", order_any, counts_any.numel());
  const Tensor counts = counts_any.contiguous(), order = order_any.contiguous();
  const int64_t words = counts.numel(), all = 2 * words - 1;
  const auto* count = counts.const_data_ptr<int64_t>();
  const auto* word_at = order.const_data_ptr<int64_t>();
  std::vector<int64_t> weight(all), parent(all), depth(all);
  std::vector<uint8_t> code(all);
  for (int64_t i = 0; i < words; ++i) weight[i] = count[word_at[i]];
  int64_t word = 0, joined = words;
  for (int64_t tree = words; tree < all; ++tree) {
    for (uint8_t side = 0; side < 2; ++side) {
      // Of equals the word, so that the longest path stays short.
      const bool leaf = word < words && (joined == tree || weight[word] <= weight[joined]);
      const int64_t taken = leaf ? word++ : joined++;
      weight[tree] += weight[taken];
      parent[taken] = tree;
      code[taken] = side;
    }
  }
  for (int64_t i = all - 2; i >= 0; --i) depth[i] = depth[parent[i]] + 1;
  Tensor first = zeros({words + 1}, counts.options());
  auto* begin = first.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < words; ++i) begin[word_at[i] + 1] = depth[i];
  for (int64_t k = 0; k < words; ++k) begin[k + 1] += begin[k];
  Tensor nodes = empty({begin[words]}, counts.options()), codes = empty({begin[words]}, counts.options().dtype(kByte));
  auto* node = nodes.mutable_data_ptr<int64_t>();
  auto* step_code = codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < words; ++i) {
    int64_t at = i;
    for (int64_t step = begin[word_at[i] + 1] - 1; step >= begin[word_at[i]]; --step, at = parent[at]) {
      node[step] = parent[at] - words;
      step_code[step] = code[at];
    }
  }
  return {first, nodes, codes};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("huffman_tree", ELMO_BOX(huffman_tree)); }

}  // namespace elmo_fast
