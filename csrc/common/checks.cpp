#include "common/checks.h"

#include <algorithm>

namespace elmo_fast {
namespace {

std::string shape_of(IntArrayRef sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + (size == kAny ? std::string("any") : std::to_string(size));
  return text + "]";
}

bool fits(const Tensor& given, IntArrayRef sizes) {
  const auto alike = [](int64_t wanted, int64_t size) { return wanted == kAny || wanted == size; };
  return given.defined() && std::equal(sizes.begin(), sizes.end(), given.sizes().begin(), given.sizes().end(), alike);
}

std::string described(const Tensor& given) {
  return given.defined() ? text_of("shape ", shape_of(given.sizes()), ", ", given.scalar_type()) : "no tensor";
}

}  // namespace

void Arguments::tensor(const std::string& name, const Tensor& given, ScalarType dtype, IntArrayRef sizes) const {
  need(
      fits(given, sizes) && given.scalar_type() == dtype, name, " must have shape ", shape_of(sizes), ", ", dtype, "; got ",
      described(given));
}

void Arguments::tensor(
    const std::string& name, const std::optional<Tensor>& given, ScalarType dtype, IntArrayRef sizes) const {
  if (given.has_value()) tensor(name, *given, dtype, sizes);
}

void Arguments::tensors(const std::string& name, TensorList given, ScalarType dtype, IntArrayRef sizes) const {
  for (size_t i = 0; i < given.size(); ++i) tensor(text_of(name, "[", i, "]"), given[i], dtype, sizes);
}

void Arguments::floating(const std::string& name, const Tensor& given, IntArrayRef sizes) const {
  need(
      fits(given, sizes) && (given.scalar_type() == kFloat || given.scalar_type() == kDouble), name, " must have shape ",
      shape_of(sizes), ", Float or Double; got ", described(given));
}

void Arguments::whole(const std::string& name, const Tensor& given, IntArrayRef sizes) const {
  need(
      fits(given, sizes) && (given.scalar_type() == kLong || given.scalar_type() == kInt), name, " must have shape ",
      shape_of(sizes), ", Long or Int; got ", described(given));
}

void Arguments::contiguous(const std::string& name, const Tensor& given) const {
  need(given.is_contiguous(), name, " must be contiguous; got strides ", shape_of(given.strides()));
}

void Arguments::ids(const std::string& name, const Tensor& given, int64_t limit) const {
  if (given.numel() == 0) return;
  const Tensor wide = given.to(kLong).contiguous();
  const auto* id = wide.const_data_ptr<int64_t>();
  const auto [least, most] = std::minmax_element(id, id + wide.numel());
  const int64_t low = *least, high = *most;
  ELMO_CHECK_INDEX(low >= 0 && high < limit, op_, ": ", name, " must lie from 0 to ", limit - 1, "; got ", low, " to ", high);
}

}  // namespace elmo_fast
