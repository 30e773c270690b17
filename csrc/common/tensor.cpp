#include "common/tensor.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace elmo_fast {
namespace {

int32_t number_of(ScalarType type) { return torch::stable::detail::to<int32_t>(torch::stable::detail::from(type)); }

std::vector<int64_t> contiguous_strides(IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) strides[d] = stride;
  return strides;
}

std::atomic<bool> fills{false};

std::string shape_of(IntArrayRef sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + (size == kAny ? std::string("any") : std::to_string(size));
  return text + "]";
}

}  // namespace

int64_t size_of(ScalarType dtype) {
  switch (dtype) {
    case kByte:
    case kChar:
    case kBool:
      return 1;
    case kShort:
    case kHalf:
    case kBFloat16:
      return 2;
    case kInt:
    case kFloat:
      return 4;
    case kLong:
    case kDouble:
      return 8;
    default:
      throw std::invalid_argument(text_of("elmo_fast: tensors of ", dtype, " are not known"));
  }
}

Tensor::Tensor(AtenTensorHandle owned) : torch::stable::Tensor(owned), type_(torch::stable::Tensor::scalar_type()) {
  int64_t *sizes = nullptr, *strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(owned, &dim_));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(owned, &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(owned, &strides));
  sizes_ = sizes, strides_ = strides;
}

Options Tensor::options() const {
  Options options{type_};
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(get(), &options.device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(get(), &options.device_index));
  return options;
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
  sizes.erase(sizes.begin() + d), strides.erase(strides.begin() + d);
  return viewed(sizes, strides, index * stride(d));
}

Tensor Tensor::narrow(int64_t d, int64_t start, int64_t length) const {
  ELMO_CHECK(start >= 0 && length >= 0 && start + length <= size(d), "elmo_fast: ", length, " from ", start, " of a dimension of ", size(d));
  auto sizes = this->sizes().vec();
  sizes[d] = length;
  return viewed(sizes, strides().vec(), start * stride(d));
}

Tensor Tensor::transpose(int64_t a, int64_t b) const {
  auto sizes = this->sizes().vec(), strides = this->strides().vec();
  std::swap(sizes[a], sizes[b]), std::swap(strides[a], strides[b]);
  return viewed(sizes, strides, 0);
}

Tensor Tensor::permute(IntArrayRef order) const {
  std::vector<int64_t> sizes, strides;
  for (const int64_t d : order) sizes.push_back(size(d)), strides.push_back(stride(d));
  return viewed(sizes, strides, 0);
}

Tensor Tensor::unsqueeze(int64_t d) const {
  auto sizes = this->sizes().vec(), strides = this->strides().vec();
  sizes.insert(sizes.begin() + d, 1), strides.insert(strides.begin() + d, 1);
  return viewed(sizes, strides, 0);
}

Tensor Tensor::view(IntArrayRef sizes) const {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  ELMO_CHECK(is_contiguous() && n == numel(), "elmo_fast: ", numel(), " numbers viewed as ", n);
  return viewed(sizes.vec(), contiguous_strides(sizes), 0);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  const Tensor copy = empty(sizes(), options());
  copy.copy_(*this);
  return copy;
}

Tensor Tensor::to(ScalarType dtype) const {
  if (dtype == type_) return *this;
  const Tensor copy = empty(sizes(), options().dtype(dtype));
  copy.copy_(*this);
  return copy;
}

const Tensor& Tensor::zero_() const {
  if (nbytes() == 0) return *this;  // memset must not get a null pointer
  if (is_contiguous())
    std::memset(mutable_data_ptr(), 0, nbytes());
  else
    TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(get()));
  return *this;
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(get(), source.get(), false));
  return *this;
}

const Tensor& Tensor::mul_(const Tensor& other) const {
  call("aten::mul_", "Tensor", *this, other);
  return *this;
}

const Tensor& Tensor::add_(const Tensor& other) const { return copy_(add(*this, other)); }

Tensor add(const Tensor& a, const Tensor& b) {
  AtenTensorHandle sum = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_aten_subtract_Tensor(a.get(), b.get(), -1.0, &sum));
  return Tensor(sum);
}

Tensor Tensor::mul(const Tensor& other) const { return call("aten::mul", "Tensor", *this, other); }
Tensor Tensor::mul(double factor) const { return mul(filled({}, factor, options())); }
Tensor Tensor::div(double divisor) const { return call("aten::div", "Tensor", *this, filled({}, divisor, options())); }

Tensor empty(IntArrayRef sizes, const Options& options) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<int64_t>(sizes.size()), sizes.data(), contiguous_strides(sizes).data(), number_of(options.type), options.device_type,
      options.device_index, &handle));
  const Tensor tensor(handle);
  if (fills.load(std::memory_order_relaxed)) fill_if_asked(tensor.mutable_data_ptr(), tensor.nbytes());
  return tensor;
}

Tensor zeros(IntArrayRef sizes, const Options& options) { return Tensor(empty(sizes, options)).zero_(); }

Tensor filled(IntArrayRef sizes, double value, const Options& options) {
  const Tensor tensor = empty(sizes, options);
  TORCH_ERROR_CODE_CHECK(aoti_torch_aten_fill__Scalar(tensor.get(), value));
  return tensor;
}

Tensor tensor_of(void* data, IntArrayRef sizes, const Options& options, void (*release)(void*, void*), void* what) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(torch_from_blob(
      data, static_cast<int64_t>(sizes.size()), sizes.data(), contiguous_strides(sizes).data(), 0, number_of(options.type),
      options.device_type, options.device_index, &handle, aoti_torch_layout_strided(), nullptr, 0, release, what));
  return Tensor(handle);
}

void fill_new_memory(bool fill) { fills.store(fill, std::memory_order_relaxed); }

void fill_if_asked(void* memory, int64_t bytes) {
  if (bytes > 0 && fills.load(std::memory_order_relaxed)) std::memset(memory, 0xff, bytes);
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
