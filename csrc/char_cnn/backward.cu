// char_cnn's backward in four kernels, all float32, deterministic, without atomics.
//
// sum_rows reads grad, features and winners once per group of two or three positions (2.4 times over for ELMo's widths, from L2), 24 KB a
// word; each SM holds two blocks of 99 KiB of bins, and every (position, filter) costs a read and a write of shared memory per word without
// bank conflicts (a warp's bins lie side by side). Bound by issuing about 30 instructions per word and warp, six warps an SM. The other
// kernels read sums (12.9 MB for ELMo, times the splits) once or twice and multiply 2 * 52 MFLOP: bound by L2.
#include "char_cnn/backward.cuh"
#include "common/block.cuh"

namespace elmo_fast::char_cnn {
namespace {

constexpr int kArrangeThreads = 256;
constexpr int kBinBytes = kBins * kThreads * sizeof(float);

__global__ void __launch_bounds__(kArrangeThreads) char_cnn_backward_arrange_kernel(const Params p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kArrangeThreads + threadIdx.x;
  if (i < arranged_count(p)) arrange(p, i);
}

template <bool tanh, bool tiled>
__global__ void __launch_bounds__(kThreads, 2) char_cnn_backward_sums_kernel(const Params p) {
  extern __shared__ float bins[];
  sum_rows<Kind<tanh, tiled>>(p, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, bins);
}

__global__ void __launch_bounds__(kWeightThreads, 4) char_cnn_backward_weights_kernel(const Params p) {
  __shared__ WeightScratch scratch;
  DeviceBlock<WeightLane> block;
  weight_gradients(block, p, blockIdx.x, scratch);
}

__global__ void __launch_bounds__(kEmbeddingThreads) char_cnn_backward_embedding_kernel(const Params p) {
  __shared__ EmbeddingScratch scratch;
  DeviceBlock<EmbeddingLane> block;
  embedding_gradients(block, p, static_cast<int64_t>(blockIdx.x) * kCharacters, blockIdx.y, scratch);
}

cudaError_t launch_sums(const Params& p, cudaStream_t stream) {
  const bool tiled = p.tiles > 1;
  void (*kernel)(Params) = p.tanh ? (tiled ? char_cnn_backward_sums_kernel<true, true> : char_cnn_backward_sums_kernel<true, false>)
                                  : (tiled ? char_cnn_backward_sums_kernel<false, true> : char_cnn_backward_sums_kernel<false, false>);
  const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBinBytes);
  if (error != cudaSuccess) return error;
  kernel<<<dim3(p.units, p.splits, p.tiles), kThreads, kBinBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const Params& p, cudaStream_t stream) {
  const auto blocks = [](int64_t n, int64_t each) { return static_cast<unsigned>(ceil_div(n, each)); };
  char_cnn_backward_arrange_kernel<<<blocks(arranged_count(p), kArrangeThreads), kArrangeThreads, 0, stream>>>(p);
  if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  if (p.columns > 0) {
    if (const auto error = launch_sums(p, stream); error != cudaSuccess) return error;
    char_cnn_backward_weights_kernel<<<blocks(p.columns, kLanes), kWeightThreads, 0, stream>>>(p);
    if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  if (!p.need_embedding) return cudaSuccess;
  const dim3 grid(blocks(p.characters, kCharacters), static_cast<unsigned>(p.vectors()));
  char_cnn_backward_embedding_kernel<<<grid, kEmbeddingThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace elmo_fast::char_cnn
