// Loops shared by threads, in place of torch's parallel_for: its threads spin at the end of a loop until the last one arrives, which on a busy
// machine takes as long as the last one needs, and its shares are fixed before it is known which thread runs. No torch here: the threads
// (workers.cpp) are compiled and tested alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <pthread.h>

namespace elmo_fast {

// torch's number for the calling thread.
int64_t num_threads();
// Number of threads that run `count` tasks, at least `grain` of them each: at most torch's number for the calling thread.
int64_t threads_for(int64_t count, int64_t grain);
// The grain of tasks that multiply `products` pairs of numbers each: a thread that has less than some microseconds of work costs more than it saves.
inline int64_t grain_of(int64_t products) {
  constexpr int64_t worth = 200'000;
  return products >= worth ? 1 : worth / (products < 1 ? 1 : products);
}
void run_pieces(int64_t threads, int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

// Calls f(begin, end) for parts of 0..count-1 of at least `grain` (but the last), each once, in any order and on any thread. Each part must
// give the same whatever the parts are. Within f, torch remembers nothing for autograd, and has of the caller's threads those that f is not run on:
// a loop within a loop of two parts on four threads has two for each part. The first exception is the caller's.
template <typename F>
void parallel_for(int64_t count, int64_t grain, const F& f) {
  if (count <= 0) return;
  const int64_t threads = threads_for(count, grain);
  if (threads == 1)
    f(int64_t(0), count);
  else
    run_pieces(threads, count, grain, f);
}

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

// The one T of this process. A forked child gets a new one: it has none of its parent's threads, and perhaps a lock that one of them held. Never
// destroyed: tensors and threads may outlive static destructors.
template <typename T>
T& of_this_process() {
  static T* one;
  static const int begun = [] {
    constexpr auto renew = [] { one = new T(); };
    renew();
    return pthread_atfork(nullptr, nullptr, renew);
  }();
  (void)begun;
  return *one;
}

}  // namespace elmo_fast
