// Measures what decides how a step of the LSTM should run on a GPU from Hopper on: a barrier between blocks, the rate
// at which blocks read L2 with and without multicast over a cluster, the gap between kernels of a graph.
// Prints a line per figure: name, value, unit, separated by tabs. benchmarks/bench_gpu.py compiles and runs it.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr unsigned kMostTries = 1u << 24;  // of a spin: a barrier that does not work must not hang the GPU
constexpr unsigned kRounds = 1000;
constexpr unsigned kChunk = 16384, kInFlight = 4;

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

__device__ void add_release(unsigned* to) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(to) : "memory");
}

__device__ void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Waits until *from is at least `expected`; false after too many tries.
__device__ bool reaches(const unsigned* from, unsigned expected) {
  for (unsigned tries = 0; tries < kMostTries; ++tries) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    if (value >= expected) return true;
  }
  return false;
}

// Every block adds 1 to one counter and waits for all.
__global__ void counter_barrier(unsigned* count, unsigned rounds, unsigned* timed_out) {
  for (unsigned round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      add_release(count);
      if (!reaches(count, gridDim.x * round)) *timed_out = 1;
    }
    __syncthreads();
  }
}

// Every block has a flag in a line of its own; its threads poll all flags.
__global__ void flag_barrier(unsigned* flags, unsigned rounds, unsigned* timed_out) {
  constexpr unsigned kLine = 32;
  for (unsigned round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) store_release(flags + blockIdx.x * kLine, round);
    for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x)
      if (!reaches(flags + block * kLine, round)) *timed_out = 1;
    __syncthreads();
  }
}

__device__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ bool completes(uint32_t barrier, uint32_t parity) {
  for (unsigned tries = 0; tries < kMostTries; ++tries) {
    uint32_t done;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    if (done) return true;
  }
  return false;
}

template <int cluster>
__device__ void meet_cluster() {
  if constexpr (cluster > 1)
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// Reads `bytes` per block `rounds` times with bulk copies, a few in flight. common: all blocks read the same bytes. In
// a cluster each block sends its part of a chunk to all of them. Nobody reads the chunks, so one may overwrite another.
template <int cluster>
__global__ void read_l2(const uint8_t* from, unsigned bytes, unsigned rounds, bool common, unsigned* timed_out) {
  extern __shared__ __align__(128) uint8_t chunks[];
  __shared__ __align__(8) uint64_t full[kInFlight];
  uint32_t rank = 0;
  if constexpr (cluster > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (auto& each : full) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&each)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  meet_cluster<cluster>();
  if (threadIdx.x == 0) {
    const uint8_t* own = from + (common ? 0 : size_t{blockIdx.x} * bytes);
    const unsigned count = bytes / kChunk, total = count * rounds;
    for (unsigned done = 0, sent = 0; done < total; ++done) {
      for (; sent < total && sent < done + kInFlight; ++sent) {
        constexpr uint32_t part = kChunk / cluster;
        const uint32_t barrier = shared_address(&full[sent % kInFlight]);
        const uint32_t to = shared_address(chunks + sent % kInFlight * kChunk) + rank * part;
        const uint8_t* source = own + sent % count * kChunk + rank * part;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kChunk) : "memory");
        if constexpr (cluster == 1) {
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
              " [%0], [%1], %2, [%3];" ::"r"(to), "l"(source), "r"(part), "r"(barrier) : "memory");
        } else {
          const auto all = static_cast<uint16_t>((1 << cluster) - 1);
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
              " [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(source), "r"(part), "r"(barrier), "h"(all) : "memory");
        }
      }
      if (!completes(shared_address(&full[done % kInFlight]), done / kInFlight & 1)) *timed_out = 1, done = total;
    }
  }
  __syncthreads();
  meet_cluster<cluster>();  // until then others write here
}

__global__ void nothing() {}

template <typename Run>
double median_ms(Run run, int repeats = 15, int warm_up = 3) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin)), CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    CHECK(cudaEventRecord(begin));
    run();
    CHECK(cudaEventRecord(end)), CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= warm_up) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Chip {
  uint8_t* data;
  unsigned *words, *timed_out;
  unsigned blocks;

  void report(const char* name, double value, const char* unit) {
    unsigned failed;
    CHECK(cudaMemcpy(&failed, timed_out, sizeof failed, cudaMemcpyDeviceToHost));
    if (failed) std::fprintf(stderr, "%s: timed out\n", name), std::exit(1);
    std::printf("%s\t%.4g\t%s\n", name, value, unit);
  }

  template <typename Kernel>
  void measure_barrier(Kernel kernel, const char* kind, unsigned threads) {
    unsigned rounds = kRounds;
    void* arguments[] = {&words, &rounds, &timed_out};
    const double ms = median_ms([&] {
      CHECK(cudaMemsetAsync(words, 0, 1 << 15));
      CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(kernel), blocks, threads, arguments, 0, nullptr));
    }, 5, 1);
    char name[96];
    std::snprintf(name, sizeof name, "barrier of %u blocks, %s, %u threads", blocks, kind, threads);
    report(name, ms * 1e3 / rounds, "us");
  }

  template <int cluster>
  void measure_l2(unsigned kib, bool common) {
    const unsigned rounds = 20, bytes = kib << 10;
    const auto kernel = read_l2<cluster>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kInFlight * kChunk));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension, attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = blocks, config.blockDim = 128, config.dynamicSmemBytes = kInFlight * kChunk;
    config.attrs = &attribute, config.numAttrs = cluster > 1;
    const double ms =
        median_ms([&] { CHECK(cudaLaunchKernelEx(&config, kernel, data, bytes, rounds, common, timed_out)); });
    char name[96];
    const char* what = common ? "one slice" : "slices";
    std::snprintf(name, sizeof name, "reading %s of %u KiB from L2, clusters of %d", what, kib, cluster);
    report(name, static_cast<double>(bytes) * blocks * rounds / ms / 1e9, "TB/s");
  }
};

}  // namespace

int main() {
  int multiprocessors;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  Chip chip{};
  chip.blocks = std::min(128, multiprocessors / 8 * 8);  // whole clusters
  CHECK(cudaMalloc(&chip.data, 64 << 20)), CHECK(cudaMemset(chip.data, 1, 64 << 20));
  CHECK(cudaMalloc(&chip.words, 1 << 16)), CHECK(cudaMemset(chip.words, 0, 1 << 16));
  chip.timed_out = chip.words + (1 << 15) / sizeof(unsigned);
  for (unsigned threads : {128u, 384u}) {
    chip.measure_barrier(counter_barrier, "a counter", threads);
    chip.measure_barrier(flag_barrier, "flags", threads);
  }
  for (unsigned kib : {64, 128, 256, 320, 512}) chip.measure_l2<1>(kib, false);  // 8 to 64 MiB of 128 blocks
  chip.measure_l2<1>(128, true), chip.measure_l2<2>(128, true);
  chip.measure_l2<4>(128, true), chip.measure_l2<8>(128, true);

  const int launches = 200;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) nothing<<<chip.blocks, 128, 0, stream>>>();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const double ms = median_ms([&] { CHECK(cudaGraphLaunch(executable, nullptr)); });
  chip.report("an empty kernel in a graph", ms * 1e3 / launches, "us");
  return 0;
}
