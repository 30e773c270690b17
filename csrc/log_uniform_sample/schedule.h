// One thread block samples S distinct words: waves of 2048 draws in the order of the stream. Within a wave a hash table holds the first draw of
// each word, a bitmap of V bits marks the words of earlier waves, and the number of first draws before each gives its position, so that ids, their
// order and the number of tries equal those of sequential sampling. `Block` is a thread block or a loop (common/block.cuh).
#pragma once

#include "common/philox.h"

namespace elmo_fast::log_uniform {

constexpr int kThreads = 1024;
constexpr int kWave = 2 * kThreads;  // draws of a wave: two per block of Philox
constexpr int kSlots = 2 * kWave;    // slots of the hash table, which so is at most half full
constexpr int kFlagWords = kWave / 32;
constexpr uint32_t kNone = 0xffffffffu;  // no word: V is below 2^31

struct Params {
  int64_t num_samples, num_words;
  double log_range;  // log1p(V), by the host's libm as everywhere
  uint64_t seed, offset;
  const int64_t *seed_more, *offset_more;  // added to the above, or null: what a captured graph advances
  uint32_t* bitmap;                        // ceil(V/32) zeros in global memory where shared memory is too small, else null
  int64_t *ids, *tries;                    // [S], []
  int64_t limit;                           // kMaxTries; a try from there on does not count
};

struct Scratch {
  uint32_t word[kSlots], first[kSlots];  // the hash table: a word, and its first draw in this wave
  uint32_t flags[kFlagWords];            // one bit per draw: the word is new
  uint32_t before[kFlagWords + 1];       // flags set in the words of flags before this one
};

struct Lane {
  uint32_t word[2], slot[2];
};

ELMO_HOST_DEVICE constexpr int64_t bitmap_words(int64_t num_words) { return ceil_div(num_words, 32); }
ELMO_HOST_DEVICE constexpr uint32_t home_of(uint32_t word) { return word * 0x9E3779B1u >> 20; }
static_assert(kSlots == 1 << 12, "home_of keeps 12 bits");
static_assert(kWave % 32 == 0 && kThreads >= kFlagWords && kThreads <= 1024);
static_assert(sizeof(Scratch) <= 48 * 1024, "static shared memory");

// Enters draw `order` of `word` in the table and returns its slot. At most half the slots are ever used, so that the search ends.
template <typename Block>
ELMO_HOST_DEVICE uint32_t enter(Scratch& s, uint32_t word, uint32_t order) {
  for (uint32_t slot = home_of(word);; slot = (slot + 1) % kSlots) {
    const uint32_t held = Block::compare_and_swap(&s.word[slot], kNone, word);
    if (held != kNone && held != word) continue;
    Block::lower(&s.first[slot], order);
    return slot;
  }
}

template <typename Block>
ELMO_HOST_DEVICE void find_first_draws(Block& block, const Params& p, Scratch& s, const uint32_t* bitmap, uint64_t seed, uint64_t offset, int64_t wave) {
  block.each([&](int t, Lane&) {
    for (int i = t; i < kSlots; i += kThreads) s.word[i] = s.first[i] = kNone;
    if (t < kFlagWords) s.flags[t] = 0;
  });
  block.each([&](int t, Lane& lane) {
    words_of_block(seed, offset, wave * kThreads + t, p.log_range, static_cast<uint32_t>(p.num_words), lane.word);
    for (int i = 0; i < 2; ++i) {
      const bool seen = bitmap[lane.word[i] / 32] >> lane.word[i] % 32 & 1u;
      lane.slot[i] = seen ? kNone : enter<Block>(s, lane.word[i], 2 * t + i);
    }
  });
  block.each([&](int t, Lane& lane) {
    for (int i = 0; i < 2; ++i) {
      const uint32_t order = 2 * t + i;
      if (lane.slot[i] != kNone && s.first[lane.slot[i]] == order) Block::set_bits(&s.flags[order / 32], 1u << order % 32);
    }
  });
}

// Gives every first draw its position after the words sampled so far, and stores it.
template <typename Block>
ELMO_HOST_DEVICE void keep(Block& block, const Params& p, Scratch& s, uint32_t* bitmap, int64_t found, int64_t wave) {
  block.each([&](int t, Lane&) {
    if (t > kFlagWords) return;
    uint32_t sum = 0;
    for (int i = 0; i < t; ++i) sum += bits_set(s.flags[i]);
    s.before[t] = sum;
  });
  block.each([&](int t, Lane& lane) {
    for (int i = 0; i < 2; ++i) {
      const uint32_t order = 2 * t + i, flags = s.flags[order / 32], bit = 1u << order % 32;
      if ((flags & bit) == 0) continue;
      const int64_t place = found + s.before[order / 32] + bits_set(flags & (bit - 1)), tries = wave * kWave + order + 1;
      if (place >= p.num_samples) continue;
      Block::set_bits(&bitmap[lane.word[i] / 32], 1u << lane.word[i] % 32);
      p.ids[place] = lane.word[i];
      if (place == p.num_samples - 1 && tries < p.limit) *p.tries = tries;
    }
  });
}

// ids and tries. If S distinct words do not appear before the limit, tries is -1 (and ids without a word are 0): a flag that nobody has to wait
// for, and that turns every expected count, and so the loss, into NaN.
template <typename Block>
ELMO_HOST_DEVICE void sample(Block& block, const Params& p, Scratch& s, uint32_t* bitmap) {
  const uint64_t seed = p.seed + (p.seed_more != nullptr ? *p.seed_more : 0);
  const uint64_t offset = p.offset + (p.offset_more != nullptr ? *p.offset_more : 0);
  block.each([&](int t, Lane&) {
    for (int64_t i = t; i < p.num_samples; i += kThreads) p.ids[i] = 0;
    if (t == 0) *p.tries = -1;
    for (int64_t i = t; p.bitmap == nullptr && i < bitmap_words(p.num_words); i += kThreads) bitmap[i] = 0;
  });
  int64_t found = 0;
  for (int64_t wave = 0; found < p.num_samples && wave * kWave < p.limit; ++wave) {
    find_first_draws(block, p, s, bitmap, seed, offset, wave);
    keep(block, p, s, bitmap, found, wave);
    found += s.before[kFlagWords];
  }
}

}  // namespace elmo_fast::log_uniform
