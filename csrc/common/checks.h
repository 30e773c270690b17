// What a kernel asks of its arguments before it touches their memory. The public functions in Python say more, and earlier;
// torch.ops.elmo_fast.* can be called without them.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>

namespace elmo_fast {

constexpr int64_t kAny = -1;  // a size of any number

// The arguments of one op. Each check raises ValueError with the op, the argument, what was wanted and what was given.
class Arguments {
 public:
  explicit Arguments(const char* op) : op_(op) {}

  void tensor(const std::string& name, const at::Tensor& given, at::ScalarType dtype, at::IntArrayRef sizes) const;
  void tensor(const std::string& name, const std::optional<at::Tensor>& given, at::ScalarType dtype, at::IntArrayRef sizes) const;
  void tensors(const std::string& name, at::TensorList given, at::ScalarType dtype, at::IntArrayRef sizes) const;
  // float32 or float64; int64 or int32.
  void floating(const std::string& name, const at::Tensor& given, at::IntArrayRef sizes) const;
  void whole(const std::string& name, const at::Tensor& given, at::IntArrayRef sizes) const;
  // Read or written as one stretch of memory.
  void contiguous(const std::string& name, const at::Tensor& given) const;
  // IndexError unless all ids lie in 0..limit-1. Looks at every one.
  void ids(const std::string& name, const at::Tensor& given, int64_t limit) const;
  // Anything else: what is said is "op: " and `words`.
  template <typename... Words>
  void need(bool holds, const Words&... words) const {
    TORCH_CHECK_VALUE(holds, op_, ": ", words...);
  }

 private:
  const char* op_;
};

}  // namespace elmo_fast
