// A thread block as the schedules see it (csrc/<op>/*.h): phases that every thread goes through, a barrier after each. The tests put a
// loop over virtual threads in its place (tests/csrc/virtual_block.h). No torch here.
#pragma once

#include <cuda_runtime.h>

#include "common/host_device.h"

namespace elmo_fast {

// Lane: what a thread keeps between phases, in registers.
template <typename Lane>
struct DeviceBlock {
  Lane lane{};

  template <typename Phase>
  ELMO_HOST_DEVICE void each(Phase&& phase) {
#if defined(__CUDA_ARCH__)
    phase(static_cast<int>(threadIdx.x), lane);
    __syncthreads();
#endif
  }
  ELMO_HOST_DEVICE static uint32_t compare_and_swap(uint32_t* at, uint32_t expected, uint32_t value) {
#if defined(__CUDA_ARCH__)
    return atomicCAS(at, expected, value);
#else
    return 0;
#endif
  }
  ELMO_HOST_DEVICE static void lower(uint32_t* at, uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMin(at, value);
#endif
  }
  ELMO_HOST_DEVICE static void set_bits(uint32_t* at, uint32_t bits) {
#if defined(__CUDA_ARCH__)
    atomicOr(at, bits);
#endif
  }
};

}  // namespace elmo_fast
