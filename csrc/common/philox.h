// Random numbers, bitwise equal on every compiler and processor: Philox, and the ids that log_uniform_sample samples from it. Triton has the same
// arithmetic (elmo_fast/ops/log_uniform_sample/kernels.py).
#pragma once

#include <cmath>
#include <cstdint>

namespace elmo_fast {

// Philox4x32-10 (Salmon et al. 2011, section 3.3).
struct Philox {
  uint32_t word[4];
};

constexpr Philox philox4x32(Philox counter, uint32_t key0, uint32_t key1) {
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
constexpr double uniform53(uint32_t low, uint32_t high) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Block `index` of the stream (seed, offset): two numbers, uniform53 of words 0, 1 and of words 2, 3.
constexpr Philox philox_block(uint64_t seed, uint64_t offset, uint64_t index) {
  const Philox counter{
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(offset),
       static_cast<uint32_t>(offset >> 32)}};
  return philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// The id of a draw, bitwise equal on every compiler and processor, CPU or GPU.
//
// Every operation below is one IEEE operation, correctly rounded, and in every sum that a compiler could contract the fma is written out:
// a product goes into nothing but the factors or the addend of an fma. So g++ with and without FMA instructions,
// libm's fma() in software and a GPU's assembler have no freedom left: a GPU and a CPU cannot disagree on an id.
//
// With libm's exp (the numpy reference) they can: floor(exp(x)) differs where the rounded exponentials lie on two sides of a whole number.
// exp_of_draw is within 0.68 ulp of e^x (tests/csrc/draw.cpp measures it) and glibc's within 0.52, so that requires the real e^x to lie
// within 0.2 ulp, at most 4.5e-17 e^x, of the tie between a whole number and the double below it: a chance of 9e-17 E[e^x] a draw, and
// E[e^x] = V / ln(V + 1). For V = 793,471 that is 5e-12 a draw, 8e-8 a sample of 8192 words (16,053 tries).

// e^x for 0 <= x < 32: x = k ln2 + r, |r| <= 0.35, with r to twice the precision where it enters linearly; Taylor series of degree 13, whose
// remainder is below 5e-18.
inline double exp_of_draw(double x) {
  const double shifted = ::fma(x, 0x1.71547652b82fep+0, 0x1.8p+52);  // 1.5 * 2^52: the sum's last bits are round(x / ln2)
  const double k = shifted - 0x1.8p+52;
  const double high = ::fma(-k, 0x1.62e42feep-1, x);  // exact: 33 bits of ln2 times 5 of k
  const double r = ::fma(-k, 0x1.a39ef35793c76p-33, high);
  const double rest = ::fma(-k, 0x1.a39ef35793c76p-33, high - r);
  double p = 0x1.6124613a86d09p-33;  // 1/13!
  p = ::fma(p, r, 0x1.1eed8eff8d898p-29);
  p = ::fma(p, r, 0x1.ae64567f544e4p-26);
  p = ::fma(p, r, 0x1.27e4fb7789f5cp-22);
  p = ::fma(p, r, 0x1.71de3a556c734p-19);
  p = ::fma(p, r, 0x1.a01a01a01a01ap-16);
  p = ::fma(p, r, 0x1.a01a01a01a01ap-13);
  p = ::fma(p, r, 0x1.6c16c16c16c17p-10);
  p = ::fma(p, r, 0x1.1111111111111p-7);
  p = ::fma(p, r, 0x1.5555555555555p-5);
  p = ::fma(p, r, 0x1.5555555555555p-3);
  p = ::fma(p, r, 0x1p-1);
  const double sum = 1.0 + r;
  const double lost = (1.0 - sum) + r;  // exactly what the sum above rounded away
  const double y = sum + ::fma(r * r, p, lost + rest);
  return y * static_cast<double>(uint64_t{1} << static_cast<int>(k));
}

// (floor(exp(u * log_range)) - 1) mod V for u in [0, 1) and log_range = log1p(V): always a word of 0..V-1.
inline uint32_t word_of(double u, double log_range, uint32_t num_words) {
  return static_cast<uint32_t>(static_cast<uint64_t>(exp_of_draw(u * log_range)) - 1) % num_words;
}

// The two words of block `index` of the stream (seed, offset).
inline void words_of_block(
    uint64_t seed, uint64_t offset, uint64_t index, double log_range, uint32_t num_words, uint32_t* words) {
  const Philox bits = philox_block(seed, offset, index);
  words[0] = word_of(uniform53(bits.word[0], bits.word[1]), log_range, num_words);
  words[1] = word_of(uniform53(bits.word[2], bits.word[3]), log_range, num_words);
}

// TensorFlow's bound: a sample that is incomplete at this try is abandoned.
constexpr int64_t kMaxTries = (int64_t{1} << 31) - 1;

}  // namespace elmo_fast
