#include "common/packed.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

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

namespace {

// True if a tensor's numbers fill one piece of memory, in any order of dimensions.
bool is_dense(const Tensor& t) {
  std::vector<int64_t> order(t.dim());
  for (int64_t d = 0; d < t.dim(); ++d) order[d] = d;
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) < t.stride(b); });
  int64_t stride = 1;
  for (const int64_t d : order) {
    if (t.size(d) == 1) continue;
    if (t.stride(d) != stride) return false;
    stride *= t.size(d);
  }
  return true;
}

uint64_t full_digest_of(const Tensor& tensor) { return tensor.numel() == 0 ? 0 : digest_of(tensor.const_data_ptr(), tensor.nbytes()); }

// The digest of 256 numbers spread over a dense tensor, its first and last among them.
uint64_t sampled_digest_of(const Tensor& tensor) {
  constexpr int64_t kSamples = 256;
  if (tensor.numel() <= kSamples) return full_digest_of(tensor);
  const int64_t size = tensor.element_size();
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  uint64_t digest = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + i * (tensor.numel() - 1) / (kSamples - 1) * size, size);
    digest = folded(digest, bits);
  }
  return digest;
}

// State of a weight at the time of its copy.
struct State {
  int64_t stamp, version;
  uint64_t sample, digest;
};
struct Entry {
  State state;
  int64_t storage;    // its number, under which Python reports that it was freed
  const void* begin;  // of the storage, whose memory may move
  std::shared_ptr<const Packed> packed;
};
using Key = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, std::string, Operand>;
using Entries = std::map<Key, Entry>;

constexpr int64_t kNoVersion = -1;  // an entry of a weight without a stamp serves none with one before a digest has shown it equal
std::atomic<bool> caching_enabled{false};

Entries& entries() {
  static auto* map = new Entries();  // never destroyed: tensors may outlive static destructors
  return *map;
}

// The version counter; -1 of a tensor of inference mode, which has none.
int64_t version_of(const Tensor& tensor) {
  return call<bool>("aten::is_inference", "", tensor) ? -1 : call<int64_t>("aten::_version", "", tensor);
}

const void* begin_of(const Tensor& t) {
  return static_cast<const char*>(t.const_data_ptr()) - t.storage_offset() * t.element_size();
}

// Drops the entries for which `goes` is true. Memory is freed after the lock is released: buffers have a lock of their own.
template <typename Goes>
void drop(const Goes& goes) {
  std::vector<std::shared_ptr<const Packed>> dropped;
  const std::lock_guard<std::mutex> lock(guard_of<Entry>());
  for (auto it = entries().begin(); it != entries().end();) {
    if (goes(it->second)) dropped.push_back(std::move(it->second.packed)), it = entries().erase(it);
    else ++it;
  }
}

Entry cached(const Key& key) {
  const std::lock_guard<std::mutex> lock(guard_of<Entry>());
  const auto at = entries().find(key);
  return at == entries().end() ? Entry{} : at->second;
}

void keep(const Key& key, Entry entry) {
  const std::lock_guard<std::mutex> lock(guard_of<Entry>());
  std::swap(entries()[key], entry);  // the previous entry is freed after the lock
}

}  // namespace

std::shared_ptr<const Packed> packed_of(
    const Tensor& weight, const std::string& layout, Operand operand, const Caching& caching, size_t number,
    const std::function<Packed()>& make) {
  const int64_t stamp = caching.stamp(number);
  if ((stamp == kUnstamped && caching.trains) || !caching_enabled || weight.numel() == 0 || !is_dense(weight))
    return std::make_shared<const Packed>(make());
  const Key key{weight.const_data_ptr(), weight.sizes().vec(), weight.strides().vec(), layout, operand};
  Entry entry = cached(key);
  State now{stamp, stamp == kUnstamped ? kNoVersion : version_of(weight), sampled_digest_of(weight), 0};
  if (entry.packed && stamp != kUnstamped && entry.state.stamp == stamp && entry.state.version == now.version &&
      entry.state.sample == now.sample)
    return entry.packed;
  now.digest = full_digest_of(weight);
  const bool same = entry.packed && entry.state.digest == now.digest;  // the same numbers, written again
  if (same && stamp == kUnstamped) return entry.packed;
  const auto packed = same ? entry.packed : std::make_shared<const Packed>(make());
  if (!same && full_digest_of(weight) != now.digest) return packed;  // another thread writes to it
  const auto storage = call<int64_t>("elmo_fast::watch_storage", "", weight);  // Python calls forget_packed when it is freed
  const void* begin = begin_of(weight);
  drop([&](const Entry& each) { return each.storage == storage && each.begin != begin; });
  keep(key, {now, storage, begin, packed});
  return packed;
}

void enable_caching() { caching_enabled = true; }

void forget_packed(int64_t storage) {
  drop([&](const Entry& each) { return each.storage == storage; });
}

int64_t packed_count() {
  const std::lock_guard<std::mutex> lock(guard_of<Entry>());
  return static_cast<int64_t>(entries().size());
}

int64_t packed_bytes() {
  const std::lock_guard<std::mutex> lock(guard_of<Entry>());
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries()) bytes += entry.packed->data.nbytes();
  return bytes;
}

void clear_packed() {
  drop([](const Entry&) { return true; });
}

}  // namespace elmo_fast
