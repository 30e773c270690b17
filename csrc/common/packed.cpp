#include "common/packed.h"

namespace elmo_fast {
namespace {

Packed pack(const Layout& layout, Operand operand) { return pack(layout.matrix, operand, layout.columns, layout.rows); }

// The tensors of a copy; `packed` of an op has them one behind the other.
std::vector<Tensor> pack_weight(const Tensor& weight, const Name& layout, const Name& precision) {
  const Arguments check("pack_weight");
  check.tensor("weight", weight, kFloating, layout == "filters" ? std::vector<int64_t>{kAny, kAny, kAny} : std::vector<int64_t>{kAny, kAny});
  const Operand operand = resolve_operand(precision, weight.scalar_type(), true);
  Packed w;
  if (layout == "plain") {
    w = pack(plain_layout(weight, operand), operand);
  } else if (layout == "filters") {
    w = pack(filters_layout(weight, operand), operand);
  } else if (layout == "highway") {
    check.need(weight.size(0) == 2 * weight.size(1), "weight of highway must have shape [2W, W]; got [", weight.size(0), ", ", weight.size(1), "]");
    w = pack(highway_layout(weight, operand), operand);
  } else {
    check.need(layout == "gates", "layout must be plain, filters, highway or gates; got ", layout);
    check.need(weight.size(0) % 4 == 0, "weight of gates must have shape [4H, K]; got [", weight.size(0), ", ", weight.size(1), "]");
    w = pack(gates_layout(weight, operand), operand);
  }
  if (is_int8(operand)) return {w.data, w.scale, w.offset};
  return {w.data};
}

}  // namespace

Layout plain_layout(const Tensor& weight, Operand) { return {weight.t(), {}, {}}; }

Packed packed_of(const Arguments& check, const Layout& layout, Operand operand, const Copies& copies, size_t index) {
  if (!copies) return pack(layout, operand);
  const size_t parts = is_int8(operand) ? 3 : 1, first = index * parts;
  check.need(
      copies->size() >= first + parts, "packed must hold what pack_weight returned for each weight with the same precision, ", parts,
      parts == 1 ? " tensor" : " tensors", " each; got ", copies->size(), " for at least ", index + 1, " weights");
  Packed w = unpacked(layout.matrix, operand, layout.columns, layout.rows);
  w.data = (*copies)[first];
  check.tensor("packed", w.data, packed_type(operand), w.shape());
  check.contiguous("packed", w.data);
  if (parts == 1) return w;
  w.scale = (*copies)[first + 1], w.offset = (*copies)[first + 2];
  check.tensor("packed", w.scale, kFloat, {w.blocks() * kBlock});
  check.tensor("packed", w.offset, kInt, {w.blocks() * kBlock});
  check.contiguous("packed", w.scale);
  check.contiguous("packed", w.offset);
  return w;
}

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("pack_weight", TORCH_BOX(&pack_weight)); }

}  // namespace elmo_fast
