// The device and stream of a CUDA kernel's launch, through torch's stable ABI.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "common/tensor.h"

namespace elmo_fast {

using CudaGuard = torch::stable::accelerator::DeviceGuard;  // makes a device the current one until it is destroyed

inline cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline bool on_device(const Tensor& tensor, int32_t index) {
  const Options options = tensor.options();
  return options.device_type == aoti_torch_device_type_cuda() && options.device_index == index;
}

}  // namespace elmo_fast
