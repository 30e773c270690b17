#include "highway/layers.h"

namespace elmo_fast::highway {

void check_layers(const Arguments& check, const Tensor& x, TensorList weights, const std::optional<Tensor>& projection_weight) {
  check.floating("x", x, {kAny, kAny});
  check.tensors("weights", weights, x.scalar_type(), {2 * x.size(1), x.size(1)});
  check.tensor("projection_weight", projection_weight, x.scalar_type(), {kAny, x.size(1)});
}

std::shared_ptr<const Packed> packed_layer(const Tensor& weight, Operand operand, const Caching& caching, size_t layer) {
  return packed_of(weight, "highway", operand, caching, layer, [&] {
    const int64_t width = weight.size(1);
    std::vector<int64_t> columns;
    for (int64_t first = 0; first < width; first += kUnits)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t unit = first; unit < first + kUnits; ++unit) columns.push_back(unit < width ? half * width + unit : -1);
    return pack(weight.t(), operand, columns);
  });
}

}  // namespace elmo_fast::highway
