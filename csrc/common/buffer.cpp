#include "common/tensor.h"

#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>

#include <sys/mman.h>

#include "common/parallel.h"

namespace elmo_fast {
namespace {

constexpr int64_t kPage = int64_t(2) << 20;
constexpr int64_t kMostIdle = int64_t(1) << 30;

std::atomic<bool> fills{false};

struct Memory {
  void* data;
  int64_t bytes;
};

struct Pool {
  std::mutex guard;
  std::list<Memory> idle;  // in the order in which they came back
  int64_t bytes = 0;
};

// The smallest idle block that holds `bytes` and wastes at most a quarter, or a new one.
Memory take(int64_t bytes) {
  auto& p = of_this_process<Pool>();
  std::unique_lock<std::mutex> lock(p.guard);
  auto best = p.idle.end();
  for (auto it = p.idle.begin(); it != p.idle.end(); ++it)
    if (it->bytes >= bytes && it->bytes <= bytes + bytes / 4 && (best == p.idle.end() || it->bytes < best->bytes)) best = it;
  if (best != p.idle.end()) {
    const Memory memory = *best;
    p.idle.erase(best);
    p.bytes -= memory.bytes;
    return memory;
  }
  lock.unlock();
  const Memory memory{std::aligned_alloc(kPage, bytes), bytes};
  ELMO_CHECK(memory.data != nullptr, "elmo_fast: not enough memory for a buffer of ", bytes, " bytes");
#if defined(MADV_HUGEPAGE)
  (void)madvise(memory.data, bytes, MADV_HUGEPAGE);  // advice: refusal costs only speed
#endif
  return memory;
}

void give_back(const Memory& memory) {
  auto& p = of_this_process<Pool>();
  const std::lock_guard<std::mutex> lock(p.guard);
  p.idle.push_back(memory);
  p.bytes += memory.bytes;
  for (; p.bytes > kMostIdle; p.idle.pop_front()) {
    p.bytes -= p.idle.front().bytes;
    std::free(p.idle.front().data);
  }
}

}  // namespace

Tensor empty_buffer(IntArrayRef sizes, ScalarType dtype) {
  int64_t needed = size_of(dtype);
  for (const int64_t size : sizes) needed *= size;
  if (needed < kPage) return empty(sizes, dtype);
  const Memory memory = take((needed + kPage - 1) / kPage * kPage);
  if (fills.load(std::memory_order_relaxed)) std::memset(memory.data, 0xff, needed);
  return torch::stable::from_blob(
      memory.data, sizes, contiguous_strides(sizes), torch::stable::Device(torch::headeronly::DeviceType::CPU), dtype,
      [held = memory.bytes](void* data) { give_back({data, held}); });
}

void fill_new_memory(bool fill) { fills.store(fill, std::memory_order_relaxed); }

}  // namespace elmo_fast
