// What a kernel asks of its arguments before it touches their memory. The public functions in Python say more, and earlier;
// torch.ops.elmo_fast.* can be called without them.
#pragma once

#include <optional>
#include <string>

#include "common/tensor.h"

namespace elmo_fast {

constexpr int64_t kAny = -1;  // a size of any number

// The arguments of one op. Each check raises ValueError with the op, the argument, what was wanted and what was given.
class Arguments {
 public:
  explicit Arguments(const char* op) : op_(op) {}

  void tensor(const std::string& name, const Tensor& given, ScalarType dtype, IntArrayRef sizes) const;
  void tensor(const std::string& name, const std::optional<Tensor>& given, ScalarType dtype, IntArrayRef sizes) const;
  void tensors(const std::string& name, TensorList given, ScalarType dtype, IntArrayRef sizes) const;
  // float32 or float64; int64 or int32.
  void floating(const std::string& name, const Tensor& given, IntArrayRef sizes) const;
  void whole(const std::string& name, const Tensor& given, IntArrayRef sizes) const;
  // Read or written as one stretch of memory.
  void contiguous(const std::string& name, const Tensor& given) const;
  // IndexError unless all ids lie in 0..limit-1. Looks at every one.
  void ids(const std::string& name, const Tensor& given, int64_t limit) const;
  // Anything else: what is said is "op: " and `words`.
  template <typename... Words>
  void need(bool holds, const Words&... words) const {
    ELMO_CHECK_VALUE(holds, op_, ": ", words...);
  }

 private:
  const char* op_;
};

}  // namespace elmo_fast
