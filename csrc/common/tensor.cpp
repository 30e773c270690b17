#include "common/tensor.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstring>

namespace elmo_fast {
namespace {

std::string shape_of(IntArrayRef sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + (size == kAny ? std::string("any") : std::to_string(size));
  return text + "]";
}

}  // namespace

std::vector<int64_t> contiguous_strides(IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) strides[d] = stride;
  return strides;
}

Tensor Tensor::viewed(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset) const {
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(
      get(), static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), offset, &view));
  return Tensor(view);
}

Tensor Tensor::select(int64_t d, int64_t index) const {
  ELMO_CHECK(index >= 0 && index < size(d), "elmo_fast: index ", index, " of a dimension of ", size(d));
  auto sizes = this->sizes().vec(), strides = this->strides().vec();
  const int64_t offset = index * strides[d];
  sizes.erase(sizes.begin() + d), strides.erase(strides.begin() + d);
  return viewed(sizes, strides, offset);
}

Tensor Tensor::narrow(int64_t d, int64_t start, int64_t length) const {
  auto sizes = this->sizes().vec();
  const auto strides = this->strides().vec();
  ELMO_CHECK(start >= 0 && length >= 0 && start + length <= sizes[d], "elmo_fast: ", length, " from ", start, " of a dimension of ", sizes[d]);
  sizes[d] = length;
  return viewed(sizes, strides, start * strides[d]);
}

Tensor Tensor::transpose(int64_t a, int64_t b) const {
  auto sizes = this->sizes().vec(), strides = this->strides().vec();
  std::swap(sizes[a], sizes[b]), std::swap(strides[a], strides[b]);
  return viewed(sizes, strides, 0);
}

Tensor Tensor::view(IntArrayRef sizes) const {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  ELMO_CHECK(is_contiguous() && n == numel(), "elmo_fast: ", numel(), " numbers viewed as ", n);
  return viewed(sizes.vec(), contiguous_strides(sizes), 0);
}

Tensor Tensor::clone() const { return empty(sizes(), scalar_type()).copy_(*this); }

Tensor Tensor::to(ScalarType dtype) const {
  return dtype == scalar_type() ? *this : empty(sizes(), dtype).copy_(*this);
}

const Tensor& Tensor::zero_() const {
  if (!is_contiguous()) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(get()));
  } else if (numel() > 0) {  // memset must not get a null pointer
    std::memset(mutable_data_ptr(), 0, nbytes());
  }
  return *this;
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(get(), source.get(), false));
  return *this;
}

Tensor Tensor::mul(const Tensor& other) const { return call("aten::mul", "Tensor", *this, other); }
Tensor Tensor::mul(double factor) const { return mul(number(factor, scalar_type())); }

// Not torch::stable::empty, which calls the dispatcher with boxed arguments.
Tensor empty(IntArrayRef sizes, ScalarType dtype) {
  const auto type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<int64_t>(sizes.size()), sizes.data(), contiguous_strides(sizes).data(), type, aoti_torch_device_type_cpu(), -1, &handle));
  return Tensor(handle);
}

Tensor zeros(IntArrayRef sizes, ScalarType dtype) { return empty(sizes, dtype).zero_(); }

Tensor number(double value, ScalarType dtype) {
  return torch::stable::full({}, value, dtype, std::nullopt, torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

void Arguments::tensor(const std::string& name, const Tensor& tensor, Types types, IntArrayRef sizes) const {
  const auto alike = [](int64_t expected, int64_t size) { return expected == kAny || expected == size; };
  const bool defined = tensor.defined(), either = types.first != types.second;
  if (defined && std::equal(sizes.begin(), sizes.end(), tensor.sizes().begin(), tensor.sizes().end(), alike) &&
      (tensor.scalar_type() == types.first || tensor.scalar_type() == types.second))
    return;
  const std::string expected = either ? text_of(types.first, " or ", types.second) : text_of(types.first);
  const std::string got = defined ? text_of("shape ", shape_of(tensor.sizes()), ", ", tensor.scalar_type()) : "no tensor";
  need(false, name, " must have shape ", shape_of(sizes), ", ", expected, "; got ", got);
}

void Arguments::tensor(const std::string& name, const std::optional<Tensor>& value, Types types, IntArrayRef sizes) const {
  if (value.has_value()) tensor(name, *value, types, sizes);
}

void Arguments::tensors(const std::string& name, TensorList values, Types types, IntArrayRef sizes) const {
  for (size_t i = 0; i < values.size(); ++i) tensor(text_of(name, "[", i, "]"), values[i], types, sizes);
}

void Arguments::contiguous(const std::string& name, const Tensor& tensor) const {
  need(tensor.is_contiguous(), name, " must be contiguous; got strides ", shape_of(tensor.strides()));
}

void Arguments::ids(const std::string& name, const Tensor& tensor, int64_t limit) const {
  if (tensor.numel() == 0) return;
  const Tensor wide = tensor.to(kLong).contiguous();
  const auto* id = wide.const_data_ptr<int64_t>();
  const auto [least, most] = std::minmax_element(id, id + wide.numel());
  const int64_t low = *least, high = *most;
  ELMO_CHECK_INDEX(low >= 0 && high < limit, op_, ": ", name, " must lie from 0 to ", limit - 1, "; got ", low, " to ", high);
}

}  // namespace elmo_fast
