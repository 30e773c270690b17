// log_uniform_sample: samples until there are S distinct ids; a bitmap of V bits marks the ids already sampled.

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/philox.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast {

namespace {

constexpr uint64_t kChunk = 1024;  // blocks generated ahead

// Compiled for several instruction sets for the sake of fma, which is a call where the processor may lack it; the words are the same.
ELMO_MULTIVERSION void draw(
    uint64_t seed, uint64_t offset, uint64_t first, uint64_t count, double log_range, uint32_t num_words, uint32_t* words) {
  for (uint64_t i = 0; i < count; ++i) words_of_block(seed, offset, first + i, log_range, num_words, words + 2 * i);
}

std::tuple<Tensor, Tensor> log_uniform_sample(int64_t num_samples, int64_t num_words, int64_t seed, const Tensor& offset_any) {
  const Arguments check("log_uniform_sample");
  check.need(
      num_words > 0 && num_words < int64_t{1} << 31 && num_samples >= 0 && num_samples <= num_words,
      "num_words must be from 1 to 2^31 - 1 and num_samples from 0 to num_words; got ", num_words, " and ", num_samples);
  check.need(offset_any.scalar_type() == kLong && offset_any.numel() == 1, "offset must be one int64");
  const auto offset = static_cast<uint64_t>(*offset_any.const_data_ptr<int64_t>());
  Tensor ids = empty({num_samples}, kLong), tries_out = empty({}, kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  std::vector<uint64_t> seen((num_words + 63) / 64);
  const double log_range = std::log1p(static_cast<double>(num_words));
  const uint64_t ahead = std::clamp<uint64_t>(num_samples / 2, 8, kChunk);
  uint32_t words[2 * kChunk];
  int64_t found = 0, tries = 0;
  for (uint64_t block = 0; found < num_samples; block += ahead) {
    draw(seed, offset, block, ahead, log_range, static_cast<uint32_t>(num_words), words);
    for (uint64_t i = 0; i < 2 * ahead && found < num_samples; ++i) {
      const uint32_t id = words[i];
      const uint64_t bit = uint64_t{1} << (id % 64);
      ++tries;
      if (seen[id / 64] & bit) continue;
      seen[id / 64] |= bit;
      out[found++] = id;
    }
    ELMO_CHECK(tries < kMaxTries, "log_uniform_sample: ", num_samples, " of ", num_words, " words were not found in 2^31 tries");
  }
  *tries_out.mutable_data_ptr<int64_t>() = tries;
  return {ids, tries_out};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("log_uniform_sample", TORCH_BOX(&log_uniform_sample)); }

}  // namespace elmo_fast
