// The schedule of the GPU's sampler (log_uniform_sample/schedule.h) over virtual threads, against drawing one by one.
// With arguments S V SEED OFFSET it prints tries and ids, for the comparison with the op.
#include <memory>
#include <unordered_set>

#include "check.h"
#include "log_uniform_sample/schedule.h"
#include "virtual_block.h"

using namespace elmo_fast;

struct Drawn {
  std::vector<int64_t> ids;
  int64_t tries = -1;
};

static Drawn one_by_one(int64_t samples, int64_t words, uint64_t seed, uint64_t offset, int64_t limit) {
  Drawn result;
  std::unordered_set<uint32_t> seen;
  const double log_range = std::log1p(static_cast<double>(words));
  for (int64_t tries = 1; tries < limit; ++tries) {
    uint32_t pair[2];
    words_of_block(seed, offset, (tries - 1) / 2, log_range, words, pair);
    if (const uint32_t id = pair[(tries - 1) % 2]; seen.insert(id).second) result.ids.push_back(id);
    if (static_cast<int64_t>(result.ids.size()) < samples) continue;
    result.tries = tries;
    return result;
  }
  return result;
}

// Every array has its exact size on the heap, so that one word past an end is an error of the sanitizer.
static Drawn in_waves(
    int64_t samples, int64_t words, uint64_t seed, uint64_t offset, int64_t limit, uint32_t shuffle, bool shared, bool pointers) {
  Drawn result;
  result.ids.assign(samples, -7);
  std::vector<uint32_t> bitmap(log_uniform::bitmap_words(words), shared ? 0xdeadbeefu : 0u);
  const std::vector<int64_t> more{3, 5};
  log_uniform::Params p{samples, words, std::log1p(static_cast<double>(words)), seed, offset, nullptr, nullptr,
                        shared ? nullptr : bitmap.data(), result.ids.data(), &result.tries, limit};
  if (pointers) {
    p.seed -= more[0], p.offset -= more[1];  // unsigned, wraps
    p.seed_more = &more[0], p.offset_more = &more[1];
  }
  const auto scratch = std::make_unique<log_uniform::Scratch>();
  VirtualBlock<log_uniform::Lane> block(log_uniform::kThreads, shuffle);
  log_uniform::sample(block, p, *scratch, bitmap.data());
  return result;
}

static void compare(int64_t samples, int64_t words, uint64_t seed, uint64_t offset) {
  const auto wanted = one_by_one(samples, words, seed, offset, kMaxTries);
  for (int i = 0; i < 2; ++i) {
    const auto found = in_waves(samples, words, seed, offset, kMaxTries, 10 + i, i == 0, i == 1);
    CHECK(found.tries == wanted.tries, "S=%ld V=%ld: %ld tries, wanted %ld", samples, words, found.tries, wanted.tries);
    CHECK(found.ids == wanted.ids, "S=%ld V=%ld: other ids", samples, words);
  }
}

// A sample whose last word comes at try t is complete under the limit t + 1 and abandoned under t.
static void the_limit_is_exact(int64_t samples, int64_t words) {
  const auto wanted = one_by_one(samples, words, 3, 1, kMaxTries);
  const auto complete = in_waves(samples, words, 3, 1, wanted.tries + 1, 5, true, false);
  CHECK(complete.tries == wanted.tries && complete.ids == wanted.ids, "%ld tries", complete.tries);
  for (const int64_t limit : {wanted.tries, wanted.tries / 2, int64_t{1}}) {
    const auto given_up = in_waves(samples, words, 3, 1, limit, 5, true, false);
    CHECK(given_up.tries == -1, "%ld tries under the limit %ld", given_up.tries, limit);
    for (const int64_t id : given_up.ids) CHECK(id >= 0 && id < words, "id %ld", id);
  }
}

int main(int count, char** argument) {
  if (count == 5) {
    const auto found = in_waves(
        std::atoll(argument[1]), std::atoll(argument[2]), std::atoll(argument[3]), std::atoll(argument[4]), kMaxTries, 1, true, false);
    std::printf("%ld\n", found.tries);
    for (const int64_t id : found.ids) std::printf("%ld\n", id);
    return 0;
  }
  for (uint64_t offset = 0; offset < 3; ++offset)
    for (int64_t words = 1; words <= 12; ++words)
      for (int64_t samples = 1; samples <= words; ++samples) compare(samples, words, 7, offset);
  for (const int64_t words : {31, 32, 33, 64, 65, 300}) compare(words, words, 1, 2);  // every word, many waves, ends of the bitmap
  compare(2000, 2100, 5, 9);      // heavy duplicates
  compare(8192, 100'000, ~uint64_t{0} >> 1, (uint64_t{1} << 40) + 3);
  compare(8192, 793'471, 1, 0);
  compare(40, 2'000'000'000, 1, 0);  // the bitmap ends where uint32 indices are large
  the_limit_is_exact(300, 300);
  the_limit_is_exact(30, 1000);
}
