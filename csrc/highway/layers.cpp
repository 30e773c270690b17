#include "highway/layers.h"

namespace elmo_fast::highway {

void check_layers(const Arguments& check, const Tensor& x, TensorList weights, const std::optional<Tensor>& projection_weight) {
  check.floating("x", x, {kAny, kAny});
  check.tensors("weights", weights, x.scalar_type(), {2 * x.size(1), x.size(1)});
  check.tensor("projection_weight", projection_weight, x.scalar_type(), {kAny, x.size(1)});
}

std::shared_ptr<const Packed> packed_layer(const Tensor& weight, Operand operand) {
  return packed_of(weight, "highway", operand, [&] {
    const int64_t width = weight.size(1);
    std::vector<int64_t> columns;
    for (int64_t first = 0; first < width; first += kUnits)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t unit = first; unit < first + kUnits; ++unit) columns.push_back(unit < width ? half * width + unit : -1);
    return pack(weight.t(), operand, columns);
  });
}

std::shared_ptr<const Packed> packed_forward(const Tensor& weight, Operand operand) {
  return packed_of(weight, "forward", operand, [&] { return pack(weight.t(), operand); });
}

std::shared_ptr<const Packed> packed_backward(const Tensor& weight, Operand operand) {
  return packed_of(weight, "backward", operand, [&] { return pack(weight, operand); });
}

}  // namespace elmo_fast::highway
