// torch's tensors through its stable C ABI (torch/csrc/stable), so that one build serves every torch from 2.11 on, and the checks of a kernel
// before it touches their memory.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace elmo_fast {

using torch::headeronly::ScalarType;
using IntArrayRef = torch::headeronly::IntHeaderOnlyArrayRef;
constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short, kInt = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long, kHalf = ScalarType::Half, kBFloat16 = ScalarType::BFloat16, kFloat = ScalarType::Float;
constexpr ScalarType kDouble = ScalarType::Double;

// Bytes of one element of a tensor that a kernel takes.
constexpr int64_t size_of(ScalarType dtype) {
  if (dtype == kLong || dtype == kDouble) return 8;
  if (dtype == kInt || dtype == kFloat) return 4;
  return dtype == kShort || dtype == kHalf || dtype == kBFloat16 ? 2 : 1;
}

// Words as one text.
template <typename... Words>
std::string text_of(const Words&... words) {
  std::ostringstream text;
  (text << ... << words);
  return text.str();
}

// Errors that Python receives as ValueError, IndexError and RuntimeError.
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

// torch's own, and views without its dispatcher, which takes a microsecond for each of the tens of views in a call. They carry no autograd. Made
// without an argument it is undefined.
class Tensor : public torch::stable::Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle owned) : torch::stable::Tensor(owned) {}
  Tensor(torch::stable::Tensor other) : torch::stable::Tensor(std::move(other)) {}

  bool is_same(const Tensor& other) const { return get() == other.get(); }
  int64_t element_size() const { return size_of(scalar_type()); }
  int64_t nbytes() const { return numel() * element_size(); }

  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor select(int64_t d, int64_t index) const;
  Tensor narrow(int64_t d, int64_t start, int64_t length) const;
  Tensor slice(int64_t d, int64_t start) const { return narrow(d, start, size(d) - start); }
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const { return transpose(0, 1); }
  Tensor view(IntArrayRef sizes) const;  // of a contiguous tensor

  // Copies; contiguous() and to() return the tensor itself if it already is so.
  Tensor contiguous() const { return is_contiguous() ? *this : clone(); }
  Tensor clone() const;  // contiguous
  Tensor to(ScalarType dtype) const;

  // In place.
  const Tensor& zero_() const;
  const Tensor& copy_(const Tensor& source) const;

  Tensor mul(const Tensor& other) const;
  Tensor mul(double factor) const;

 private:
  Tensor viewed(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset) const;
};

using TensorList = torch::headeronly::HeaderOnlyArrayRef<Tensor>;

std::vector<int64_t> contiguous_strides(IntArrayRef sizes);
Tensor empty(IntArrayRef sizes, ScalarType dtype);
Tensor zeros(IntArrayRef sizes, ScalarType dtype);
inline Tensor empty_like(const Tensor& like) { return empty(like.sizes(), like.scalar_type()); }
Tensor number(double value, ScalarType dtype);  // of no dimension

// empty(), on huge pages from 2 MiB on: a fresh 4 KiB page costs a fault for every 1024 floats, streamed weights a TLB entry each. The memory is
// cached when the tensor is freed, at most 1 GiB of it, and serves later buffers of about its size: what went back to the system is cleared (in a
// virtual machine: fetched from the host) before it comes again.
Tensor empty_buffer(IntArrayRef sizes, ScalarType dtype);
// If true, buffers are filled with bytes that make every float NaN, as torch fills its own new tensors where
// torch.utils.deterministic.fill_uninitialized_memory is set, so that tests see an output that nothing wrote.
void fill_new_memory(bool fill);

constexpr int64_t kAny = -1;  // a size of any number

// The dtypes that an argument may have.
struct Types {
  constexpr Types(ScalarType only) : first(only), second(only) {}
  constexpr Types(ScalarType first, ScalarType second) : first(first), second(second) {}
  ScalarType first, second;
};
constexpr Types kFloating{kFloat, kDouble}, kWhole{kLong, kInt};

// The arguments of one op: torch.ops.elmo_fast.* can be called without the public Python functions, which check earlier and report more. Each check
// raises ValueError with the op, the argument, the expected value and the actual one.
class Arguments {
 public:
  explicit Arguments(const char* op) : op_(op) {}

  void tensor(const std::string& name, const Tensor& given, Types types, IntArrayRef sizes) const;
  void tensor(const std::string& name, const std::optional<Tensor>& given, Types types, IntArrayRef sizes) const;
  void tensors(const std::string& name, TensorList given, Types types, IntArrayRef sizes) const;
  // Read or written as one block of memory.
  void contiguous(const std::string& name, const Tensor& given) const;
  // IndexError unless all ids lie in 0..limit-1. Looks at every one.
  void ids(const std::string& name, const Tensor& given, int64_t limit) const;
  // Anything else: what is said is "op: " and `words`.
  template <typename... Words>
  void need(bool holds, const Words&... words) const {
    ELMO_CHECK_VALUE(holds, op_, ": ", words...);
  }

  // What the forward pass returned for the backward pass: another backend's may be more or fewer.
  void saved(TensorList tensors, size_t count) const {
    need(tensors.size() == count, "saved must hold what the forward pass returned with save=True, ", count, " in all; got ", tensors.size());
  }

 private:
  const char* op_;
};

// A text as ops take it: torch 2.13's own conversion to std::string never frees what it made.
struct Name : std::string {
  using std::string::string;
};

}  // namespace elmo_fast

HIDDEN_NAMESPACE_BEGIN(torch, stable, detail)
template <>
struct FromImpl<elmo_fast::Tensor> {
  static StableIValue call(const torch::stable::Tensor& tensor, uint64_t, bool) { return torch::stable::detail::from(tensor); }
};
template <>
struct ToImpl<elmo_fast::Tensor> {
  static elmo_fast::Tensor call(StableIValue value, uint64_t, bool) { return torch::stable::detail::to<torch::stable::Tensor>(value); }
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

namespace elmo_fast {

// torch's operator of that name, of one result.
template <typename Result = Tensor, typename... Arguments>
Result call(const char* op, const char* overload, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(Arguments)> stack{torch::stable::detail::from(arguments)...};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(op, overload, stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Result>(stack[0]);
}

}  // namespace elmo_fast
