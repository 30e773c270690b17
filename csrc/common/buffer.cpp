#include "common/tensor.h"

#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

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
  std::list<Memory> idle;  // in the order in which they came back
  int64_t bytes = 0;
};

Pool& pool() {
  static auto* one = new Pool();  // never destroyed: tensors may outlive static destructors
  return *one;
}

// The smallest idle block that holds `bytes` and wastes at most a quarter, or nothing.
Memory take(int64_t bytes) {
  auto& p = pool();
  const std::lock_guard<std::mutex> lock(guard_of<Pool>());
  auto best = p.idle.end();
  for (auto it = p.idle.begin(); it != p.idle.end(); ++it)
    if (it->bytes >= bytes && it->bytes <= bytes + bytes / 4 && (best == p.idle.end() || it->bytes < best->bytes)) best = it;
  if (best == p.idle.end()) return {nullptr, 0};
  const Memory memory = *best;
  p.idle.erase(best);
  p.bytes -= memory.bytes;
  return memory;
}

Memory allocate(int64_t bytes) {
  const Memory memory{std::aligned_alloc(kPage, bytes), bytes};
  ELMO_CHECK(memory.data != nullptr, "elmo_fast: not enough memory for a buffer of ", bytes, " bytes");
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  (void)madvise(memory.data, bytes, MADV_HUGEPAGE);  // advice: refusal costs only speed
#endif
  return memory;
}

void drop_until(Pool& p, int64_t most) {
  for (; p.bytes > most; p.idle.pop_front()) {
    p.bytes -= p.idle.front().bytes;
    std::free(p.idle.front().data);
  }
}

void give_back(const Memory& memory) {
  auto& p = pool();
  const std::lock_guard<std::mutex> lock(guard_of<Pool>());
  p.idle.push_back(memory);
  p.bytes += memory.bytes;
  drop_until(p, kMostIdle);
}

}  // namespace

Tensor empty_buffer(IntArrayRef sizes, const Options& options) {
  int64_t needed = size_of(options.type);
  for (const int64_t size : sizes) needed *= size;
  if (needed < kPage) return empty(sizes, options);
  const int64_t bytes = (needed + kPage - 1) / kPage * kPage;
  Memory memory = take(bytes);
  if (memory.data == nullptr) memory = allocate(bytes);
  if (fills.load(std::memory_order_relaxed)) std::memset(memory.data, 0xff, needed);
  return torch::stable::from_blob(
      memory.data, sizes, contiguous_strides(sizes), options.device, options.type, [held = memory.bytes](void* data) { give_back({data, held}); });
}

void fill_new_memory(bool fill) { fills.store(fill, std::memory_order_relaxed); }

int64_t idle_buffer_bytes() {
  const std::lock_guard<std::mutex> lock(guard_of<Pool>());
  return pool().bytes;
}

void clear_idle_buffers() {
  const std::lock_guard<std::mutex> lock(guard_of<Pool>());
  drop_until(pool(), 0);
}

}  // namespace elmo_fast
