// torch's tensors through its stable C ABI (torch/csrc/stable), of which one build serves every torch from 2.11 on. Views are made without
// torch's dispatcher: they carry no autograd and cost nanoseconds. What computes is torch's own operator where a kernel has none of its own.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace elmo_fast {

using torch::headeronly::ScalarType;
using IntArrayRef = torch::headeronly::IntHeaderOnlyArrayRef;
constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short, kInt = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long, kHalf = ScalarType::Half, kBFloat16 = ScalarType::BFloat16, kFloat = ScalarType::Float;
constexpr ScalarType kDouble = ScalarType::Double, kBool = ScalarType::Bool;

int64_t size_of(ScalarType dtype);  // bytes of one element

// Words as one text.
template <typename... Words>
std::string text_of(const Words&... words) {
  std::ostringstream text;
  (text << ... << words);
  return text.str();
}

// What Python receives as ValueError, IndexError and RuntimeError.
#define ELMO_CHECK_AS(error, holds, ...) \
  if (!(holds)) throw error(::elmo_fast::text_of(__VA_ARGS__))
#define ELMO_CHECK_VALUE(holds, ...) ELMO_CHECK_AS(std::invalid_argument, holds, __VA_ARGS__)
#define ELMO_CHECK_INDEX(holds, ...) ELMO_CHECK_AS(std::out_of_range, holds, __VA_ARGS__)
#define ELMO_CHECK(holds, ...) ELMO_CHECK_AS(std::runtime_error, holds, __VA_ARGS__)

// f<T>() for the type of these numbers, double or float.
template <typename F>
auto by_type(ScalarType numbers, const F& f) {
  return numbers == kDouble ? f.template operator()<double>() : f.template operator()<float>();
}

// What a new tensor is to be.
struct Options {
  ScalarType type = kFloat;
  int32_t device_type = aoti_torch_device_type_cpu(), device_index = 0;
  Options dtype(ScalarType other) const { return {other, device_type, device_index}; }
};

// torch's own, with what its stable ABI lacks: sizes and strides without a call for each, and views. Made without an argument it is undefined.
class Tensor : public torch::stable::Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle owned);

  bool is_same(const Tensor& other) const { return get() == other.get(); }
  int64_t dim() const { return dim_; }
  int64_t size(int64_t d) const { return sizes_[d < 0 ? d + dim_ : d]; }
  int64_t stride(int64_t d) const { return strides_[d < 0 ? d + dim_ : d]; }
  IntArrayRef sizes() const { return {sizes_, static_cast<size_t>(dim_)}; }
  IntArrayRef strides() const { return {strides_, static_cast<size_t>(dim_)}; }
  ScalarType scalar_type() const { return type_; }
  int64_t element_size() const { return size_of(type_); }
  int64_t nbytes() const { return numel() * element_size(); }
  Options options() const;

  // Views.
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor select(int64_t d, int64_t index) const;
  Tensor narrow(int64_t d, int64_t start, int64_t length) const;
  Tensor slice(int64_t d, int64_t start) const { return narrow(d, start, size(d) - start); }
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const { return transpose(0, 1); }
  Tensor permute(IntArrayRef order) const;
  Tensor unsqueeze(int64_t d) const;
  Tensor view(IntArrayRef sizes) const;  // of a contiguous tensor

  // Copies; contiguous() and to() return the tensor itself where it is what was asked for.
  Tensor contiguous() const;
  Tensor clone() const;  // contiguous
  Tensor to(ScalarType dtype) const;
  Tensor reshape(IntArrayRef sizes) const { return contiguous().view(sizes); }

  // In place.
  const Tensor& zero_() const;
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& add_(const Tensor& other) const;
  const Tensor& mul_(const Tensor& other) const;

  Tensor mul(const Tensor& other) const;
  Tensor mul(double factor) const;
  Tensor div(double divisor) const;
  Tensor sum(int64_t d) const;
  Tensor sum() const;

 private:
  Tensor viewed(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset) const;

  int64_t dim_ = 0;
  const int64_t *sizes_ = nullptr, *strides_ = nullptr;  // torch's own, which last as long as the tensor
  ScalarType type_ = kFloat;
};

using TensorList = torch::headeronly::HeaderOnlyArrayRef<Tensor>;

Tensor empty(IntArrayRef sizes, const Options& options);
Tensor zeros(IntArrayRef sizes, const Options& options);
inline Tensor empty_like(const Tensor& like) { return empty(like.sizes(), like.options()); }
inline Tensor zeros_like(const Tensor& like) { return zeros(like.sizes(), like.options()); }
Tensor filled(IntArrayRef sizes, double value, const Options& options);

// Memory of one's own as a contiguous tensor; release(data, what) is called when the last that shares it dies.
Tensor tensor_of(void* data, IntArrayRef sizes, const Options& options, void (*release)(void*, void*), void* what);

Tensor cat(TensorList tensors);  // along the first dimension
Tensor index_select(const Tensor& x, const Tensor& index);  // rows
Tensor add(const Tensor& a, const Tensor& b);
Tensor expm1(const Tensor& x);
Tensor neg(const Tensor& x);
Tensor tanh_backward(const Tensor& grad, const Tensor& output);
// out <- (bias or beta · out +) a · b
void mm_out(const Tensor& out, const Tensor& a, const Tensor& b);
void addmm_out(const Tensor& out, const Tensor& bias, const Tensor& a, const Tensor& b);

// The version counter; -1 of a tensor of inference mode, which has none.
int64_t version_of(const Tensor& tensor);
// The number that Python gives to this tensor's storage; when the storage dies, Python calls forget_packed() with it.
int64_t watch_storage(const Tensor& tensor);
// Tells autograd, and whoever keeps copies, that these numbers changed.
void mark_written(const Tensor& tensor);

// Whether memory that nothing has written is filled with bytes that make every float NaN, so that tests see an output that nothing wrote.
void fill_new_memory(bool fill);
void fill_if_asked(void* memory, int64_t bytes);

// A text as ops take it: torch 2.13's own conversion to std::string never frees what it made.
struct Name : std::string {
  using std::string::string;
};
template <typename>
struct TakesNames;
template <typename Result, typename... Arguments>
struct TakesNames<Result(Arguments...)> {
  static constexpr bool value = !(std::is_same_v<std::remove_cvref_t<Arguments>, std::string> || ...) &&
                                !(std::is_same_v<std::remove_cvref_t<Arguments>, std::string_view> || ...);
};

// A kernel as torch's stable ABI calls it: m.impl("name", ELMO_BOX(kernel)).
template <typename F, F* kernel>
void boxed(StableIValue* stack, uint64_t arguments, uint64_t results) {
  static_assert(TakesNames<F>::value, "texts of ops are of type Name");
  torch::stable::detail::boxer<F, kernel>::boxed_fn(stack, arguments, results);
}
#define ELMO_BOX(kernel) (&::elmo_fast::boxed<std::remove_pointer_t<decltype(&kernel)>, &kernel>)

}  // namespace elmo_fast

HIDDEN_NAMESPACE_BEGIN(torch, stable, detail)
template <>
struct FromImpl<elmo_fast::Tensor> {
  static StableIValue call(const elmo_fast::Tensor& tensor, uint64_t, bool) {
    AtenTensorHandle shared = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor.get(), &shared));
    return torch::stable::detail::from(shared);
  }
};
template <>
struct ToImpl<elmo_fast::Tensor> {
  static elmo_fast::Tensor call(StableIValue value, uint64_t, bool) { return elmo_fast::Tensor(torch::stable::detail::to<AtenTensorHandle>(value)); }
};
template <>
struct ToImpl<elmo_fast::Name> {
  static elmo_fast::Name call(StableIValue value, uint64_t, bool) {
    const auto handle = torch::stable::detail::to<StringHandle>(value);
    const std::unique_ptr<std::remove_pointer_t<StringHandle>, AOTITorchError (*)(StringHandle)> owner(handle, torch_delete_string);
    size_t length = 0;
    const char* data = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle, &length));
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle, &data));
    return {data, length};
  }
};
HIDDEN_NAMESPACE_END(torch, stable, detail)
