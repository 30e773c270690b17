// One thread block on one SM: the order of the draws is a chain, and 8 waves (8192 of 793,471 words) are not worth a grid's barriers. Bound
// by the arithmetic of a wave on one SM (Philox, and 25 double-precision operations a draw) and by its five barriers; the bitmap, 99 KB
// for that vocabulary, stays in shared memory.
#include "common/block.cuh"
#include "log_uniform_sample/sample.cuh"

namespace elmo_fast::log_uniform {
namespace {

template <bool shared>
__global__ void __launch_bounds__(kThreads) log_uniform_sample_kernel(const Params p) {
  __shared__ Scratch scratch;
  extern __shared__ uint32_t dynamic[];
  DeviceBlock<Lane> block;
  sample(block, p, scratch, shared ? dynamic : p.bitmap);
}

cudaError_t shared_bytes_left(int64_t* bytes) {
  int device = 0, most = 0;
  if (const auto error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const auto error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device); error != cudaSuccess) return error;
  *bytes = most - static_cast<int64_t>(sizeof(Scratch));
  return cudaSuccess;
}

}  // namespace

cudaError_t workspace_bytes(int64_t num_words, size_t* bytes) {
  int64_t left = 0;
  const auto error = shared_bytes_left(&left);
  const int64_t needed = bitmap_words(num_words) * static_cast<int64_t>(sizeof(uint32_t));
  *bytes = needed <= left ? 0 : static_cast<size_t>(needed);
  return error;
}

cudaError_t launch(const Params& p, cudaStream_t stream) {
  const size_t bytes = bitmap_words(p.num_words) * sizeof(uint32_t);
  if (p.bitmap != nullptr) {
    if (const auto error = cudaMemsetAsync(p.bitmap, 0, bytes, stream); error != cudaSuccess) return error;
    log_uniform_sample_kernel<false><<<1, kThreads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  const auto error =
      cudaFuncSetAttribute(log_uniform_sample_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  log_uniform_sample_kernel<true><<<1, kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace elmo_fast::log_uniform
