#include "common/packed.h"

#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include "common/digest.h"
#include "common/fork.h"

namespace elmo_fast {
namespace {

// What is known of a weight when its copy is made.
struct State {
  int64_t storage, version;
  uint64_t sample, digest;
};
struct Entry {
  State state;
  const void* begin;  // of the storage, which may move while it lives
  std::shared_ptr<const Packed> packed;
};
using Key = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, std::string, Operand>;
using Entries = std::map<Key, Entry>;

constexpr int64_t kNoVersion = -1;  // an entry of a weight without a stamp serves none with one before a digest has shown it equal
std::atomic<bool> hears_of_deaths{false};

Entries& entries() {
  static auto* map = new Entries();  // never destroyed: tensors may outlive static destructors
  return *map;
}

const void* begin_of(const Tensor& t) {
  return static_cast<const char*>(t.const_data_ptr()) - t.storage_offset() * t.element_size();
}

// Drops the entries for which `goes` is true. Memory is given back after the lock: buffers have one of their own.
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
  std::swap(entries()[key], entry);  // what was there dies after the lock
}

}  // namespace

std::shared_ptr<const Packed> packed_of(
    const Tensor& weight, const std::string& layout, Operand operand, const Caching& caching, size_t number,
    const std::function<Packed()>& make) {
  const int64_t stamp = caching.stamp(number);
  if ((stamp == kUnstamped && caching.trains) || !hears_of_deaths || weight.numel() == 0 || !is_dense(weight))
    return std::make_shared<const Packed>(make());
  const Key key{weight.const_data_ptr(), weight.sizes().vec(), weight.strides().vec(), layout, operand};
  Entry entry = cached(key);
  State now{stamp, stamp == kUnstamped ? kNoVersion : version_of(weight), sampled_digest_of(weight), 0};
  if (entry.packed && stamp != kUnstamped && entry.state.storage == stamp && entry.state.version == now.version &&
      entry.state.sample == now.sample)
    return entry.packed;
  now.digest = digest_of(weight);
  const bool same = entry.packed && entry.state.digest == now.digest;  // the same numbers, whoever wrote them
  if (same && stamp == kUnstamped) return entry.packed;
  const auto packed = same ? entry.packed : std::make_shared<const Packed>(make());
  if (!same && digest_of(weight) != now.digest) return packed;  // another thread writes to it
  now.storage = watch_storage(weight);
  const void* begin = begin_of(weight);
  drop([&](const Entry& each) { return each.state.storage == now.storage && each.begin != begin; });
  keep(key, {now, begin, packed});
  return packed;
}

void hear_of_deaths() { hears_of_deaths = true; }

void forget_packed(int64_t storage) {
  drop([&](const Entry& each) { return each.state.storage == storage; });
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
