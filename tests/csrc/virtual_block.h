// A thread block on the CPU: every phase runs all virtual threads one after the other, each time in a different order. So a result that
// depends on the order of threads within a phase fails a test; every index is real, so that the sanitizers check it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

template <typename Lane>
struct VirtualBlock {
  std::vector<Lane> lanes;
  std::vector<int> order;
  std::mt19937 random;

  VirtualBlock(int threads, uint32_t seed) : lanes(threads), order(threads), random(seed) {
    std::iota(order.begin(), order.end(), 0);
  }
  template <typename Phase>
  void each(Phase&& phase) {
    std::shuffle(order.begin(), order.end(), random);
    for (int thread : order) phase(thread, lanes[thread]);
  }
  static uint32_t compare_and_swap(uint32_t* at, uint32_t expected, uint32_t wanted) {
    const uint32_t held = *at;
    if (held == expected) *at = wanted;
    return held;
  }
  static void lower(uint32_t* at, uint32_t value) { *at = std::min(*at, value); }
  static void set_bits(uint32_t* at, uint32_t bits) { *at |= bits; }
};
