#include "common/parallel.h"

#include <algorithm>
#include <exception>

#include "common/tensor.h"

// OpenMP's, from whichever library torch brought: linked here, it could be another, whose number torch does not read.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int omp_in_parallel();
}

namespace elmo_fast {
namespace {

constexpr int64_t kPieces = 8;  // for each thread: the last one to end has an eighth of its share to do alone at most

}  // namespace

int64_t num_threads() {
  uint32_t count = 1;
  TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&count));
  return count;
}

// Without OpenMP torch gives a thread no number of its own.
int64_t threads_for(int64_t count, int64_t grain) {
  if (omp_set_num_threads == nullptr || omp_in_parallel == nullptr || omp_in_parallel()) return 1;
  return std::max<int64_t>(1, std::min<int64_t>(num_threads(), count / std::max<int64_t>(grain, 1)));
}

void run_pieces(int64_t threads, int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  Pieces pieces(count, std::max(grain, (count + kPieces * threads - 1) / (kPieces * threads)));
  const int64_t within = num_threads() / threads;
  call_together(threads - 1, [&](bool helper) {
    // Sets this thread's number of threads, for our loops and for torch's: torch.set_num_threads would also set the number with which new
    // threads begin. In a helper torch records no operation for autograd, which belongs to the caller: kernels run below it.
    const int before = static_cast<int>(num_threads());
    const bool gradient = aoti_torch_grad_mode_is_enabled();
    std::exception_ptr error;
    omp_set_num_threads(static_cast<int>(within));
    if (helper) aoti_torch_grad_mode_set_enabled(false);
    try {
      pieces.take_each(f);
    } catch (...) {
      pieces.stop();
      error = std::current_exception();
    }
    omp_set_num_threads(before);
    if (helper) aoti_torch_grad_mode_set_enabled(gradient);
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace elmo_fast
