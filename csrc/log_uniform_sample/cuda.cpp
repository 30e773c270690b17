// log_uniform_sample on a CUDA device: memory, device and stream for the kernel of sample.cu.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cmath>

#include "log_uniform_sample/sample.cuh"

namespace elmo_fast::log_uniform {
namespace {

const int64_t* number_at(const std::optional<at::Tensor>& number, const char* name, c10::Device device) {
  if (!number.has_value()) return nullptr;
  TORCH_CHECK(
      number->device() == device && number->scalar_type() == at::kLong && number->numel() == 1, "log_uniform_sample: ", name,
      " must be one int64 on ", device, "; got ", number->scalar_type(), " of shape ", number->sizes(), " on ", number->device());
  return number->const_data_ptr<int64_t>();
}

std::tuple<at::Tensor, at::Tensor> log_uniform_sample_cuda(
    int64_t num_samples, int64_t num_words, int64_t seed, int64_t offset, const std::optional<at::Tensor>& seed_more,
    const std::optional<at::Tensor>& offset_more, c10::Device asked) {
  TORCH_CHECK(asked.is_cuda(), "log_uniform_sample: the CUDA kernel draws on a CUDA device, not on ", asked);
  TORCH_CHECK(
      num_samples >= 1 && num_samples <= num_words && num_words <= (int64_t{1} << 31) - 1, "log_uniform_sample: ", num_samples, " of ",
      num_words, " words");
  const c10::Device device = asked.has_index() ? asked : c10::Device(c10::kCUDA, c10::cuda::current_device());
  const c10::cuda::CUDAGuard guard(device);
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  at::Tensor ids = at::empty({num_samples}, options), tries = at::empty({}, options), bitmap;
  Params p{num_samples, num_words, std::log1p(static_cast<double>(num_words)), static_cast<uint64_t>(seed), static_cast<uint64_t>(offset),
           number_at(seed_more, "seed", device), number_at(offset_more, "offset", device), nullptr, ids.mutable_data_ptr<int64_t>(),
           tries.mutable_data_ptr<int64_t>(), kMaxTries};
  size_t bytes = 0;
  C10_CUDA_CHECK(workspace_bytes(num_words, &bytes));
  if (bytes > 0) {
    bitmap = at::empty({static_cast<int64_t>(bytes)}, options.dtype(at::kByte));
    p.bitmap = reinterpret_cast<uint32_t*>(bitmap.mutable_data_ptr<uint8_t>());
  }
  C10_CUDA_CHECK(launch(p, c10::cuda::getCurrentCUDAStream()));
  return {ids, tries};
}

}  // namespace

// No tensor must go in, so the op is found under the key that serves every device.
TORCH_LIBRARY_IMPL(elmo_fast, CompositeExplicitAutograd, m) { m.impl("log_uniform_sample_cuda", log_uniform_sample_cuda); }

}  // namespace elmo_fast::log_uniform
