// In place of torch's header of this name, for ThreadSanitizer alone (tools/sanitize.py): the shares of at::parallel_for run on threads
// that TSan sees begin and end. It knows nothing of OpenMP's barriers in libgomp, which would all be told as races.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#define INTRA_OP_PARALLEL

namespace at::internal {

template <typename F>
inline void invoke_parallel(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
  int64_t count = get_num_threads();
  if (grain_size > 0) count = std::min(count, divup(end - begin, grain_size));
  const int64_t chunk = divup(end - begin, count);
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int64_t share = 0; share < count && begin + share * chunk < end; ++share)
    threads.emplace_back([&, share] {
      try {
        const ThreadIdGuard guard(static_cast<int>(share));
        f(begin + share * chunk, std::min(end, begin + (share + 1) * chunk));
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace at::internal
