// Threads that wait for work, and the claiming of work: without torch, so that they can be compiled and tested alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace elmo_fast {

// 0..count-1 in pieces of `size` (the last may be shorter). A thread takes the next piece when it has done one, so that a thread that the
// system has stopped delays one piece alone.
class Pieces {
 public:
  Pieces(int64_t count, int64_t size) : count(count), size(size) {}

  // Calls f(begin, end) for pieces that no other thread has taken, until none is left.
  template <typename F>
  void take_each(const F& f) {
    for (;;) {
      const int64_t begin = next.fetch_add(size, std::memory_order_relaxed);
      if (begin >= count) return;
      f(begin, begin + size < count ? begin + size : count);
    }
  }
  // The pieces that nobody has taken stay undone.
  void stop() { next.store(count, std::memory_order_relaxed); }

 private:
  const int64_t count, size;
  std::atomic<int64_t> next{0};
};

// Calls f(false) on this thread, and f(true) on up to `helpers` others meanwhile. Returns when this call and those that have begun by its end
// have returned: a helper that the system has not woken until then never begins. Rethrows the first exception of any of them. f may call
// call_together itself; any number of threads may. Raises std::system_error where the system refuses a thread.
void call_together(int64_t helpers, const std::function<void(bool helper)>& f);

}  // namespace elmo_fast
