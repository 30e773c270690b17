// log_uniform_sample on a CUDA device: memory, device and stream for the kernel of sample.cu.

#include <cmath>

#include "common/cuda.h"
#include "log_uniform_sample/sample.cuh"

namespace elmo_fast::log_uniform {
namespace {

const int64_t* number_at(const std::optional<Tensor>& number, const char* name, int32_t device) {
  if (!number.has_value()) return nullptr;
  ELMO_CHECK(
      on_device(*number, device) && number->scalar_type() == kLong && number->numel() == 1, "log_uniform_sample: ", name,
      " must be one int64 on CUDA device ", device, "; got ", number->numel(), " of ", number->scalar_type());
  return number->const_data_ptr<int64_t>();
}

}  // namespace

std::tuple<Tensor, Tensor> sample_on_gpu(
    int64_t num_samples, int64_t num_words, int64_t seed, int64_t offset, const std::optional<Tensor>& seed_more,
    const std::optional<Tensor>& offset_more, torch::stable::Device asked) {
  ELMO_CHECK(
      num_samples >= 1 && num_samples <= num_words && num_words <= (int64_t{1} << 31) - 1, "log_uniform_sample: ", num_samples, " of ",
      num_words, " words");
  int32_t device = asked.index();
  if (device < 0) STD_CUDA_CHECK(cudaGetDevice(&device));
  const CudaGuard guard(device);
  const Options options{kLong, aoti_torch_device_type_cuda(), device};
  Tensor ids = empty({num_samples}, options), tries = empty({}, options), bitmap;
  Params p{num_samples, num_words, std::log1p(static_cast<double>(num_words)), static_cast<uint64_t>(seed), static_cast<uint64_t>(offset),
           number_at(seed_more, "seed", device), number_at(offset_more, "offset", device), nullptr, ids.mutable_data_ptr<int64_t>(),
           tries.mutable_data_ptr<int64_t>(), kMaxTries};
  size_t bytes = 0;
  STD_CUDA_CHECK(workspace_bytes(num_words, &bytes));
  if (bytes > 0) {
    bitmap = empty({static_cast<int64_t>(bytes)}, options.dtype(kByte));
    p.bitmap = reinterpret_cast<uint32_t*>(bitmap.mutable_data_ptr<uint8_t>());
  }
  STD_CUDA_CHECK(launch(p, current_stream(device)));
  return {ids, tries};
}

}  // namespace elmo_fast::log_uniform
