#include "common/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <optional>

#include "common/workers.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace elmo_fast {
namespace {

constexpr int64_t kPieces = 8;  // for each thread: the last one to end has an eighth of its share to do alone at most

#ifdef _OPENMP
// How many threads this thread has, for loops of ours and for torch's own: at::set_num_threads would also set what new threads begin with.
class Threads {
 public:
  explicit Threads(int64_t count) : before(at::get_num_threads()) { omp_set_num_threads(static_cast<int>(count)); }
  ~Threads() { omp_set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before;
};
#endif

}  // namespace

#ifdef _OPENMP

int64_t threads_for(int64_t count, int64_t grain) {
  if (at::in_parallel_region()) return 1;
  return std::max<int64_t>(1, std::min<int64_t>(at::get_num_threads(), count / std::max<int64_t>(grain, 1)));
}

void run_pieces(int64_t threads, int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  Pieces pieces(count, std::max(grain, (count + kPieces * threads - 1) / (kPieces * threads)));
  const int64_t within = at::get_num_threads() / threads;
  const at::ThreadLocalState state;
  call_together(threads - 1, [&](bool helper) {
    std::optional<at::ThreadLocalStateGuard> as_caller;
    if (helper) as_caller.emplace(state);
    const Threads own(within);
    try {
      pieces.take_each(f);
    } catch (...) {
      pieces.stop();
      throw;
    }
  });
}

#else  // without OpenMP torch gives a thread no number of its own

int64_t threads_for(int64_t, int64_t) { return 1; }
void run_pieces(int64_t, int64_t count, int64_t, const std::function<void(int64_t, int64_t)>& f) { f(0, count); }

#endif

}  // namespace elmo_fast
