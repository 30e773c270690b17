// The arrangement that both passes of highway share.
#pragma once


#include <memory>

#include "common/checks.h"
#include "common/packed.h"

namespace elmo_fast::highway {

constexpr int64_t kUnits = 32;  // units of a layer whose transform and gate share one block of 64 columns
constexpr int64_t kRows = 64;   // rows of one product
constexpr int64_t kStrip = 512; // rows that stay in the second-level cache while every block of the weight passes by

// Raises unless these are rows [N, W], layers [2W, W] and a projection [D, W] of one dtype.
void check_layers(const Arguments& check, const Tensor& x, TensorList weights, const std::optional<Tensor>& projection_weight);

// weight [2W, W] as right operand [W, 2W], its columns in blocks of 32 transforms and the same 32 units' gates.
std::shared_ptr<const Packed> packed_layer(const Tensor& weight, Operand operand, const Caching& caching, size_t layer);

}  // namespace elmo_fast::highway
