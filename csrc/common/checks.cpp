#include "common/checks.h"

#include <algorithm>

namespace elmo_fast {
namespace {

std::string shape_of(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + (size == kAny ? std::string("any") : std::to_string(size));
  return text + "]";
}

bool fits(const at::Tensor& given, at::IntArrayRef sizes) {
  const auto alike = [](int64_t wanted, int64_t size) { return wanted == kAny || wanted == size; };
  return given.defined() && std::equal(sizes.begin(), sizes.end(), given.sizes().begin(), given.sizes().end(), alike);
}

std::string described(const at::Tensor& given) {
  return given.defined() ? c10::str("shape ", shape_of(given.sizes()), ", ", given.scalar_type()) : "no tensor";
}

}  // namespace

void Arguments::tensor(const std::string& name, const at::Tensor& given, at::ScalarType dtype, at::IntArrayRef sizes) const {
  need(
      fits(given, sizes) && given.scalar_type() == dtype, name, " must have shape ", shape_of(sizes), ", ", dtype, "; got ",
      described(given));
}

void Arguments::tensor(
    const std::string& name, const std::optional<at::Tensor>& given, at::ScalarType dtype, at::IntArrayRef sizes) const {
  if (given.has_value()) tensor(name, *given, dtype, sizes);
}

void Arguments::tensors(const std::string& name, at::TensorList given, at::ScalarType dtype, at::IntArrayRef sizes) const {
  for (size_t i = 0; i < given.size(); ++i) tensor(c10::str(name, "[", i, "]"), given[i], dtype, sizes);
}

void Arguments::floating(const std::string& name, const at::Tensor& given, at::IntArrayRef sizes) const {
  need(
      fits(given, sizes) && (given.scalar_type() == at::kFloat || given.scalar_type() == at::kDouble), name, " must have shape ",
      shape_of(sizes), ", Float or Double; got ", described(given));
}

void Arguments::whole(const std::string& name, const at::Tensor& given, at::IntArrayRef sizes) const {
  need(
      fits(given, sizes) && (given.scalar_type() == at::kLong || given.scalar_type() == at::kInt), name, " must have shape ",
      shape_of(sizes), ", Long or Int; got ", described(given));
}

void Arguments::contiguous(const std::string& name, const at::Tensor& given) const {
  need(given.is_contiguous(), name, " must be contiguous; got strides ", given.strides());
}

void Arguments::ids(const std::string& name, const at::Tensor& given, int64_t limit) const {
  if (given.numel() == 0) return;
  const auto [least, most] = at::aminmax(given);
  const auto low = least.item<int64_t>(), high = most.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < limit, op_, ": ", name, " must lie from 0 to ", limit - 1, "; got ", low, " to ", high);
}

}  // namespace elmo_fast
