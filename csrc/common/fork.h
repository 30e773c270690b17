// Mutexes that a forked child finds open: fork() copies the locks of threads that the child does not have.
#pragma once

#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace elmo_fast {

// The mutex of `Owner`, which every fork takes and opens again. No code may wait for a second one, or for Python, while it holds one. Never
// destroyed: tensors may outlive static destructors.
template <typename Owner>
std::mutex& guard_of() {
  static auto* mutex = [] {
#if defined(__unix__) || defined(__APPLE__)
    constexpr auto open = [] { guard_of<Owner>().unlock(); };
    pthread_atfork([] { guard_of<Owner>().lock(); }, open, open);
#endif
    return new std::mutex();
  }();
  return *mutex;
}

}  // namespace elmo_fast
