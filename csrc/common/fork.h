// Mutexes that a forked child finds open: fork() copies the locks of threads that the child does not have.
#pragma once

#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace elmo_fast {

// Takes the mutex around every fork from now on. No code may wait for a second such mutex, or for Python, while it holds one.
template <std::mutex& (*guard)()>
void hold_in_forks() {
#if defined(__unix__) || defined(__APPLE__)
  constexpr auto open = [] { guard().unlock(); };
  pthread_atfork([] { guard().lock(); }, open, open);
#endif
}

}  // namespace elmo_fast
