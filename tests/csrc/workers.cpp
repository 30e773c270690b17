// csrc/common/parallel.h: every piece once, on threads that wake, end, nest, fail and are forked. A hang ends by an alarm.
// Given "no fork", it forks nothing, for ThreadSanitizer.
#include "common/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"

using namespace elmo_fast;

// Numbers that no atomic guards: only the end of a call makes them the caller's.
static void add_each(int64_t helpers, int64_t count, int64_t size) {
  std::vector<int> times(count, 0);
  Pieces pieces(count, size);
  call_together(helpers, [&](bool) {
    pieces.take_each([&](int64_t begin, int64_t end) {
      CHECK(begin < end && end <= count && end - begin <= size, "%ld to %ld", long(begin), long(end));
      for (int64_t i = begin; i < end; ++i) ++times[i];
    });
  });
  for (int64_t i = 0; i < count; ++i) CHECK(times[i] == 1, "%ld was done %d times", long(i), times[i]);
}

static void check_every_piece_is_done_once() {
  for (int64_t helpers : {0, 1, 2, 4})
    for (int64_t count : {0, 1, 2, 7, 64, 1001})
      for (int64_t size : {1, 3, 64}) add_each(helpers, count, size);
}

// Calls that end before, while and after a helper wakes.
static void check_many_calls() {
  for (int i = 0; i < 20000; ++i) add_each(1 + i % 3, 5, 1);
}

static void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// After `pause`, long enough for the helpers to sleep, all of them begin; the caller waits for those that have begun.
static void check_helpers_begin_and_are_waited_for(int helpers, int pause) {
  std::atomic<int> begun{0};
  int ended[8] = {};
  sleep_ms(pause);
  call_together(helpers, [&](bool helper) {
    if (helper) {
      const int own = begun.fetch_add(1);
      sleep_ms(pause);
      ended[own] = 1;
    } else {
      while (begun.load() < helpers) sleep_ms(1);
    }
  });
  for (int i = 0; i < helpers; ++i) CHECK(ended[i] == 1, "the call ended before helper %d", i);
}

// The first piece ends when all others have been done: no other piece waits for it.
static void check_a_slow_piece_delays_no_other() {
  std::atomic<int> done{0};
  Pieces pieces(50, 1);
  call_together(1, [&](bool) {
    pieces.take_each([&](int64_t begin, int64_t) {
      while (begin == 0 && done.load() < 49) sleep_ms(1);
      done.fetch_add(1);
    });
  });
  CHECK(done.load() == 50, "%d", done.load());
}

static void check_the_first_error_is_the_callers(bool in_helper) {
  std::atomic<int> begun{0};
  Pieces pieces(1000000, 1);
  try {
    call_together(2, [&](bool helper) {
      begun.fetch_add(1);
      while (begun.load() < 3) sleep_ms(1);
      if (helper == in_helper) pieces.stop();
      if (helper == in_helper) throw std::runtime_error("on purpose");
      pieces.take_each([](int64_t, int64_t) { sleep_ms(1); });
    });
    CHECK(false, "no error");
  } catch (const std::runtime_error& error) {
    CHECK(std::strcmp(error.what(), "on purpose") == 0, "%s", error.what());
  }
  add_each(2, 100, 1);
}

static void check_calls_nest_and_callers_share() {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([] {
      for (int i = 0; i < 200; ++i) {
        Pieces outer(2, 1);
        call_together(1, [&](bool) { outer.take_each([](int64_t, int64_t) { add_each(1, 37, 2); }); });
      }
    });
  for (auto& caller : callers) caller.join();
}

static void check_a_forked_child_has_threads_of_its_own() {
  add_each(3, 100, 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    check_helpers_begin_and_are_waited_for(2, 1);
    add_each(3, 1000, 1);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "status %d", status);
}

int main(int count, char** words) {
  alarm(100);
  check_every_piece_is_done_once();
  check_many_calls();
  for (int helpers : {1, 3}) check_helpers_begin_and_are_waited_for(helpers, 10);
  check_a_slow_piece_delays_no_other();
  for (bool in_helper : {false, true}) check_the_first_error_is_the_callers(in_helper);
  check_calls_nest_and_callers_share();
  if (count == 1 || std::strcmp(words[1], "no fork") != 0) check_a_forked_child_has_threads_of_its_own();
  return 0;
}
