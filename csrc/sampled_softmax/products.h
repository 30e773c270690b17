// What both passes of sampled_softmax share: the products with the sampled rows, chunk by chunk, and accidental hits.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "common/gemm.h"

namespace elmo_fast::sampled_softmax {

// How many rows of S logits fit into the bound; at least one.
inline int64_t rows_per_chunk(int64_t rows, int64_t samples, int64_t item_bytes, int64_t chunk_bytes) {
  return std::max<int64_t>(1, std::min(rows, chunk_bytes / std::max<int64_t>(1, samples * item_bytes)));
}

// A right operand used for several products. Exact operands go to torch's product: both sides are used for one step only, so
// packing a float32 table would cost a pass over it for nothing. Rounded ones are packed, as torch would round the result too.
class RightOperand {
 public:
  RightOperand(at::Tensor w, Operand operand);
  // out[M, N] (+)= x[M, K] · W (+ bias[N]); x of any strides, out contiguous.
  void multiply(const at::Tensor& x, const at::Tensor& out, bool accumulate, const at::Tensor& bias = {}) const;

 private:
  at::Tensor weight_;
  Operand operand_;
  Packed packed_;
};

inline bool exact(Operand operand) { return operand == Operand::Float32 || operand == Operand::Float64; }

// x as the product sees it: rounded to the operand, held in its own dtype.
at::Tensor rounded_values(const at::Tensor& x, Operand operand);

// Where a target is among the samples.
class AccidentalHits {
 public:
  AccidentalHits(const int64_t* samples, int64_t count);
  template <typename Visit>
  void each(int64_t target, const Visit& visit) const {
    auto hit = std::lower_bound(places_.begin(), places_.end(), std::pair<int64_t, int64_t>{target, 0});
    for (; hit != places_.end() && hit->first == target; ++hit) visit(hit->second);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> places_;  // (word, position), sorted
};

}  // namespace elmo_fast::sampled_softmax
