// alias_sample: Vose's alias table of a distribution, and samples from it. Bitwise equal to the reference: every step on a double is one IEEE
// operation, with no product that a compiler could contract with a sum.
#include <algorithm>
#include <numeric>
#include <vector>

#include "common/philox.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

std::tuple<Tensor, Tensor> alias_pairs(const Tensor& shares) {
  Arguments("alias_pairs").tensor("shares", shares, kDouble, {kAny});
  Tensor left_over = shares.clone();
  const int64_t words = shares.numel();
  Tensor thresholds = filled({words}, 1.0, shares.options()), aliases = empty({words}, Options{kLong});
  auto* left = left_over.mutable_data_ptr<double>();
  auto* threshold = thresholds.mutable_data_ptr<double>();
  auto* alias = aliases.mutable_data_ptr<int64_t>();
  std::iota(alias, alias + words, 0);
  std::vector<int64_t> less, more;
  for (int64_t k = 0; k < words; ++k) (left[k] < 1 ? less : more).push_back(k);
  while (!less.empty() && !more.empty()) {
    const int64_t small = less.back(), large = more.back();
    less.pop_back();
    threshold[small] = left[small];
    alias[small] = large;
    left[large] = (left[large] + left[small]) - 1.0;
    if (left[large] < 1) {
      more.pop_back();
      less.push_back(large);
    }
  }
  return {thresholds, aliases};
}

// Columns and chances of samples first..first+count-1: sample i uses the two numbers of the generator's block i.
ELMO_MULTIVERSION void draw(
    uint64_t seed, uint64_t offset, int64_t first, int64_t count, double words, int64_t* columns, double* chances) {
  for (int64_t i = 0; i < count; ++i) {
    const Philox bits = philox_block(seed, offset, static_cast<uint64_t>(first + i));
    columns[i] = static_cast<int64_t>(uniform53(bits.word[0], bits.word[1]) * words);
    chances[i] = uniform53(bits.word[2], bits.word[3]);
  }
}

Tensor alias_sample(int64_t num_samples, const Tensor& thresholds, const Tensor& aliases, int64_t seed, int64_t offset) {
  const Arguments check("alias_sample");
  check.tensor("thresholds", thresholds, kDouble, {kAny});
  check.tensor("aliases", aliases, kLong, {thresholds.numel()});
  check.contiguous("thresholds", thresholds);
  check.contiguous("aliases", aliases);
  check.need(num_samples >= 0 && thresholds.numel() > 0, "num_samples must be at least 0, and thresholds hold a word");
  constexpr int64_t kAhead = 512;
  int64_t columns[kAhead];
  double chances[kAhead];
  Tensor ids = empty({num_samples}, aliases.options());
  auto* out = ids.mutable_data_ptr<int64_t>();
  const auto* threshold = thresholds.const_data_ptr<double>();
  const auto* alias = aliases.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_samples; i += kAhead) {
    const int64_t n = std::min(kAhead, num_samples - i);
    draw(seed, offset, i, n, static_cast<double>(thresholds.numel()), columns, chances);
    for (int64_t j = 0; j < n; ++j) out[i + j] = chances[j] < threshold[columns[j]] ? columns[j] : alias[columns[j]];
  }
  return ids;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("alias_pairs", ELMO_BOX(alias_pairs));
  m.impl("alias_sample", ELMO_BOX(alias_sample));
}

}  // namespace elmo_fast
