#include "common/interleave.h"

#include <cstring>

#include "common/simd.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace elmo_fast {
namespace {

template <typename Unit>
ELMO_INLINE void interleave(const Unit* const* lines, int64_t begin, int64_t end, Unit* target) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < kGroup; ++j) target[i * kGroup + j] = lines[j][i];
}

#if __has_builtin(__builtin_shufflevector)

// Columns i..i+7 of lines 0..7, transposed in registers: pairs of numbers, of pairs and of halves change places. Compilers see no more than
// single numbers in the loop above.
ELMO_INLINE void transpose_eight(const uint32_t* const* lines, int64_t i, uint32_t* target) {
  typedef uint32_t Eight __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint64_t Four __attribute__((vector_size(32)));
  Four pairs[8], fours[8];
  for (int64_t j = 0; j < 8; j += 2) {
    const Eight a = *reinterpret_cast<const Eight*>(lines[j] + i), b = *reinterpret_cast<const Eight*>(lines[j + 1] + i);
    pairs[j] = (Four)__builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[j + 1] = (Four)__builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int64_t j = 0; j < 8; j += 4)
    for (int64_t k = 0; k < 2; ++k) {
      fours[j + 2 * k] = __builtin_shufflevector(pairs[j + k], pairs[j + 2 + k], 0, 4, 2, 6);
      fours[j + 2 * k + 1] = __builtin_shufflevector(pairs[j + k], pairs[j + 2 + k], 1, 5, 3, 7);
    }
  for (int64_t k = 0; k < 4; ++k) {
    *reinterpret_cast<Eight*>(target + k * kGroup) = (Eight)__builtin_shufflevector(fours[k], fours[4 + k], 0, 1, 4, 5);
    *reinterpret_cast<Eight*>(target + (4 + k) * kGroup) = (Eight)__builtin_shufflevector(fours[k], fours[4 + k], 2, 3, 6, 7);
  }
}

}  // namespace

ELMO_MULTIVERSION void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target) {
  const int64_t whole = count / 16 * 16;
  for (int64_t i = 0; i < whole; i += 16)
    for (int64_t half = 0; half < kGroup; half += 8) {
      transpose_eight(lines + half, i, target + i * kGroup + half);
      transpose_eight(lines + half, i + 8, target + (i + 8) * kGroup + half);
    }
  interleave(lines, whole, count, target);
}

#else

}  // namespace

ELMO_MULTIVERSION void interleave_units(const uint32_t* const* lines, int64_t count, uint32_t* target) {
  interleave(lines, 0, count, target);
}

#endif

ELMO_MULTIVERSION void interleave_units(const uint16_t* const* lines, int64_t count, uint16_t* target) {
  interleave(lines, 0, count, target);
}
void interleave_units(const double* const* lines, int64_t count, double* target) { interleave(lines, 0, count, target); }

ELMO_MULTIVERSION void zip_columns(const uint16_t* even, const uint16_t* odd, uint32_t* target) {
  for (int64_t j = 0; j < kBlock; ++j) target[j] = even[j] | static_cast<uint32_t>(odd[j]) << 16;
}

void write_past_caches(const void* source, void* target, int64_t bytes) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(
        reinterpret_cast<__m128i*>(static_cast<char*>(target) + i),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(source) + i)));
#else
  std::memcpy(target, source, bytes);
#endif
}
void finish_writes() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace elmo_fast
