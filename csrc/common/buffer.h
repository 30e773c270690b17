// Large buffers on huge pages: a fresh 4 KiB page costs a fault for every 1024 floats, and streamed weights a TLB entry each.
#pragma once

#include <ATen/ATen.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace elmo_fast {

inline at::Tensor empty_buffer(at::IntArrayRef sizes, const at::TensorOptions& options) {
  auto buffer = at::empty(sizes, options);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 2u << 20;
  const auto first = (reinterpret_cast<uintptr_t>(buffer.mutable_data_ptr()) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(buffer.mutable_data_ptr()) + buffer.nbytes()) / page * page;
  if (last > first) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // advice: refusal costs only speed
#endif
  return buffer;
}

}  // namespace elmo_fast
