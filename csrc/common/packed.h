// Packed copies of weights as plain tensors. The op pack_weight makes them, and ops take them, so that they need not pack at every call.
#pragma once

#include <optional>
#include <vector>

#include "common/gemm.h"

namespace elmo_fast {

// How an op reads a weight: the first, third and fourth argument of pack().
struct Layout {
  Tensor matrix;
  std::vector<int64_t> columns, rows;
};

// The layouts, each next to the kernel that reads it; plain: a weight [N, K] as it is.
Layout plain_layout(const Tensor& weight, Operand operand);
Layout filters_layout(const Tensor& weight, Operand operand);
Layout highway_layout(const Tensor& weight, Operand operand);
Layout gates_layout(const Tensor& weight, Operand operand);

// What pack_weight returned for the weights of an op, one behind the other; none: the op packs.
using Copies = std::optional<std::vector<Tensor>>;

// The copy of the op's weight number `index`, or a new one. Raises if it cannot be the copy of a weight of this size and operand.
Packed packed_of(const Arguments& check, const Layout& layout, Operand operand, const Copies& copies, size_t index);

}  // namespace elmo_fast
