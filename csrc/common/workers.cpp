#include "common/parallel.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace elmo_fast {
namespace {

// Looks before a thread sleeps, some tens of microseconds in all: longer than the gaps between the loops of one op. After the first ones, a few
// microseconds, each look lets another process that waits for this processor run: spinning then costs only time that nobody wants.
constexpr int kSpins = 200, kYields = 60;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

enum State : uint32_t { kIdle, kCalled, kBusy, kDone };

// Returns when the state is no longer `state`.
void wait_while(const std::atomic<uint32_t>& at, uint32_t state) {
  for (int i = 0; i < kSpins; ++i, relax())
    if (at.load(std::memory_order_acquire) != state) return;
  for (int i = 0; i < kYields; ++i, std::this_thread::yield())
    if (at.load(std::memory_order_acquire) != state) return;
  at.wait(state, std::memory_order_acquire);
}

struct Call {
  const std::function<void(bool)>& f;
  std::mutex guard;
  std::exception_ptr error;

  void run(bool helper) {
    try {
      f(helper);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      if (!error) error = std::current_exception();
    }
  }
};

// Never destroyed: its thread waits until the process ends. Only its caller moves it from kIdle to kCalled, back, and from kDone to kIdle;
// only its thread from kCalled to kBusy and kDone.
struct Worker {
  std::atomic<uint32_t> state{kIdle};
  Call* call = nullptr;

  void serve() {
    for (;;) {
      uint32_t found = kCalled;
      if (state.compare_exchange_strong(found, kBusy, std::memory_order_acquire)) {
        call->run(true);
        state.store(kDone, std::memory_order_release);
        state.notify_one();
      } else {
        wait_while(state, found);
      }
    }
  }
  void begin(Call& given) {
    call = &given;
    state.store(kCalled, std::memory_order_release);
    state.notify_one();
  }
  // Takes the call back if the thread has not begun it, else waits for its end.
  void end() {
    uint32_t found = kCalled;
    if (state.compare_exchange_strong(found, kIdle, std::memory_order_acquire)) return;
    while (state.load(std::memory_order_acquire) == kBusy) wait_while(state, kBusy);
    state.store(kIdle, std::memory_order_relaxed);
  }
};

struct Pool {
  std::mutex guard;
  std::vector<Worker*> idle;
};

std::vector<Worker*> take_workers(int64_t count) {
  auto& p = of_this_process<Pool>();
  const std::lock_guard<std::mutex> lock(p.guard);
  while (static_cast<int64_t>(p.idle.size()) < count) {
    auto* worker = new Worker();
    p.idle.push_back(worker);
    try {
      std::thread([worker] { worker->serve(); }).detach();
    } catch (...) {
      p.idle.pop_back();
      delete worker;
      throw;
    }
  }
  const std::vector<Worker*> taken(p.idle.end() - count, p.idle.end());
  p.idle.resize(p.idle.size() - count);
  return taken;
}

void give_back(const std::vector<Worker*>& workers) {
  auto& p = of_this_process<Pool>();
  const std::lock_guard<std::mutex> lock(p.guard);
  p.idle.insert(p.idle.end(), workers.begin(), workers.end());
}

}  // namespace

void call_together(int64_t helpers, const std::function<void(bool)>& f) {
  Call call{f, {}, {}};
  const auto workers = take_workers(helpers);
  for (Worker* worker : workers) worker->begin(call);
  call.run(false);
  for (Worker* worker : workers) worker->end();
  give_back(workers);
  if (call.error) std::rethrow_exception(call.error);
}

}  // namespace elmo_fast
