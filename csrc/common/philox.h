// Philox4x32-10 (Salmon et al. 2011, section 3.3): arithmetic alone, for host and device compilers.
#pragma once

#include "common/host_device.h"

namespace elmo_fast {

struct Philox {
  uint32_t word[4];
};

ELMO_HOST_DEVICE constexpr Philox philox4x32(Philox counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter.word[0], p1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = Philox{
        {static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Two 32-bit words -> a number in [0, 1) of 53 bits.
ELMO_HOST_DEVICE constexpr double uniform53(uint32_t low, uint32_t high) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Block `index` of the stream (seed, offset): two numbers, uniform53 of words 0, 1 and of words 2, 3.
ELMO_HOST_DEVICE constexpr Philox philox_block(uint64_t seed, uint64_t offset, uint64_t index) {
  const Philox counter{
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(offset),
       static_cast<uint32_t>(offset >> 32)}};
  return philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace elmo_fast
