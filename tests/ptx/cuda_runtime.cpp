// In place of CUDA's runtime: the launchers of csrc/<op>/*.cu run as they are, and each launch goes to `launched`, which Python gives.
// Memory of the device is the host's. What a launcher may call and is missing here is an undefined symbol when the library is loaded.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <string>

namespace {

using Launched = int (*)(const char* kernel, const unsigned* grid, const unsigned* block, size_t shared, size_t allowed, const void* parameter);

struct Kernel {
  std::string name;
  size_t allowed = 0;  // bytes of dynamic shared memory that were asked for
};

Launched launched = nullptr;
int most_shared = 0;
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> all;
  return all;
}
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} pushed;
cudaError_t last = cudaSuccess;

}  // namespace

extern "C" {

void set_device(Launched each, int shared) { launched = each, most_shared = shared; }

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(
    void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels()[function].name = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(&kernels().at(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t) {
  const auto& k = *reinterpret_cast<Kernel*>(kernel);
  const unsigned blocks[] = {grid.x, grid.y, grid.z}, threads[] = {block.x, block.y, block.z};
  if (launched(k.name.c_str(), blocks, threads, shared, k.allowed, arguments[0]) != 0) last = cudaErrorLaunchFailure;
  return last;
}
cudaError_t cudaGetLastError() {
  const auto found = last;
  last = cudaSuccess;
  return found;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > most_shared) return cudaErrorInvalidValue;
  kernels().at(function).allowed = value;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = most_shared;
  return attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}
}
