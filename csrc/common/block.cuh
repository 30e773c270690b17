// A thread block as the schedules (csrc/<op>/*.h) see it: phases that every thread runs, with a barrier after each. The tests replace it by a loop
// over virtual threads (tests/csrc/virtual_block.h). No torch here.
#pragma once

#include <cuda_runtime.h>

#include "common/host_device.h"

namespace elmo_fast {

// Lane: a thread's state between phases, in registers.
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
