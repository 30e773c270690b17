#include "common/digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

constexpr int64_t kLanes = 32, kLine = kLanes * 8;  // independent chains of a multiplication each, enough to hide its latency
constexpr int64_t kChunk = int64_t(1) << 20;        // bytes that one task reads; a fixed number, so that threads change no digest
constexpr uint64_t kOdd = 0x9e3779b1, kWide = 0x9e3779b97f4a7c15;

// Every step maps lanes one to one for a given word, and words one to one for a given lane: a change of one word always shows. The
// rotation brings high bits down, which multiplications only move up: without it two changed signs in one lane would cancel.
ELMO_MULTIVERSION void mix_lines(uint64_t* __restrict lanes, const char* __restrict bytes, int64_t lines) {
  uint64_t lane[kLanes], word[kLanes];
  std::memcpy(lane, lanes, sizeof(lane));
  for (int64_t line = 0; line < lines; ++line) {
    std::memcpy(word, bytes + line * kLine, kLine);
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint64_t x = lane[i] ^ word[i], turned = x << 29 | x >> 35;
      lane[i] = (turned & 0xffffffff) * kOdd + ((turned >> 32) * kOdd << 32);  // turned * kOdd in products of 32 bits, which vectors have
    }
  }
  std::memcpy(lanes, lane, sizeof(lane));
}

uint64_t folded(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * kWide;
  return digest ^ digest >> 32;
}

uint64_t digest_of_bytes(const char* bytes, int64_t count) {
  uint64_t lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = kWide * (i + 1);
  const int64_t lines = count / kLine;
  mix_lines(lanes, bytes, lines);
  if (const int64_t rest = count % kLine; rest > 0) {
    char line[kLine] = {};
    std::memcpy(line, bytes + lines * kLine, rest);
    mix_lines(lanes, line, 1);
  }
  uint64_t digest = static_cast<uint64_t>(count);
  for (const uint64_t lane : lanes) digest = folded(digest, lane);
  return digest;
}

}  // namespace

uint64_t digest_of(const void* data, int64_t count) {
  const auto* bytes = static_cast<const char*>(data);
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<uint64_t> digests(chunks);
  parallel_for(chunks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) digests[i] = digest_of_bytes(bytes + i * kChunk, std::min(kChunk, count - i * kChunk));
  });
  uint64_t digest = 0;
  for (const uint64_t each : digests) digest = folded(digest, each);
  return digest;
}

uint64_t sample_of(const void* data, int64_t count, int64_t size) {
  constexpr int64_t kSamples = 256;
  const auto* bytes = static_cast<const char*>(data);
  uint64_t digest = static_cast<uint64_t>(count);
  for (int64_t i = 0; i < std::min(count, kSamples); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + (count <= kSamples ? i : i * (count - 1) / (kSamples - 1)) * size, size);
    digest = folded(digest, bits);
  }
  return digest;
}

}  // namespace elmo_fast
