// The exponential and the word of a draw (common/philox.h).
#include "common/philox.h"

#include <cfloat>
#include <cstring>
#include <random>

#include "check.h"

using namespace elmo_fast;

// The exponential is part of what a (seed, offset) means: not a bit of it may change from one release to the next.
static void exp_keeps_its_bits() {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < 20'000; ++i) {
    const double y = exp_of_draw(i * 0x1.1p-10);
    uint64_t bits;
    std::memcpy(&bits, &y, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3u;
  }
  CHECK(hash == 0x9bee778c1ee130a3u, "the hash of 20,000 values is %016llx", static_cast<unsigned long long>(hash));
}

// Against the x87's 64-bit significand, whose own error is 2^-11 ulp of a double.
static void exp_is_within_its_bound() {
  if (LDBL_MANT_DIG < 64) return;
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const double x = static_cast<double>(random() >> 11) * 0x1p-53 * (i % 2 ? 21.5 : 0.4), y = exp_of_draw(x);
    const long double error = (static_cast<long double>(y) - expl(x)) / (std::nextafter(y, 1e300) - y);
    worst = std::max(worst, static_cast<double>(error < 0 ? -error : error));
  }
  CHECK(worst < 0.68 && worst > 0.5, "largest error %.4f ulp", worst);
  CHECK(exp_of_draw(0) == 1, "%.17g", exp_of_draw(0));
}

static void words_lie_in_the_vocabulary() {
  const double last = 1 - 0x1p-53;
  for (const uint32_t v : {1u, 2u, 3u, 20u, 65535u, 793471u, 2147483647u}) {
    const double log_range = std::log1p(static_cast<double>(v));
    CHECK(word_of(0, log_range, v) == 0, "V=%u", v);
    for (const double u : {0.0, 0x1p-53, 0.25, 0.5, 1 - 0x1p-30, last}) CHECK(word_of(u, log_range, v) < v, "V=%u u=%a", v, u);
  }
  int wrapped = 0;  // vocabularies in which rounding takes u = 1 to V + 1; no u below 1 gets there, but nothing relies on that
  for (uint32_t v = 1; v < 20'000; ++v) {
    const double log_range = std::log1p(static_cast<double>(v));
    const bool reached = exp_of_draw(log_range) >= v + 1.0;
    wrapped += reached;
    CHECK(word_of(1, log_range, v) == (reached ? 0 : v - 1), "V=%u gives %u", v, word_of(1, log_range, v));
    CHECK(word_of(last, log_range, v) == v - 1, "V=%u gives %u", v, word_of(last, log_range, v));
  }
  CHECK(wrapped > 1000, "%d draws were taken modulo V", wrapped);
}

int main() {
  exp_is_within_its_bound();
  exp_keeps_its_bits();
  words_lie_in_the_vocabulary();
}
