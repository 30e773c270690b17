// Loops shared by threads, in place of torch's parallel_for: its threads spin at the end of a loop until the last one is there, which on a busy
// machine takes the time that the last one needs, and its shares are fixed before it is known which thread runs.
#pragma once

#include <cstdint>
#include <functional>

namespace elmo_fast {

// torch's number for the calling thread.
int64_t num_threads();
// On how many threads `count` tasks run, of which one thread should have `grain` at least: at most torch's number for the calling thread.
int64_t threads_for(int64_t count, int64_t grain);
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

}  // namespace elmo_fast
