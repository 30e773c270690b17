#include "common/packed.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

namespace elmo_fast {
namespace {

struct Entry {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  int64_t version;
  uint64_t probe;
  std::shared_ptr<const Packed> packed;
};
using Key = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>, std::string, Operand>;

std::mutex guard;
std::map<Key, Entry>& entries() {
  static auto* map = new std::map<Key, Entry>();  // never destroyed: tensors may outlive static destructors
  return *map;
}

int64_t version_of(const at::Tensor& t) { return t.is_inference() ? -1 : static_cast<int64_t>(t._version()); }

// 256 elements spread over the tensor's storage, hashed (FNV-1a over their bits).
uint64_t probe_of(const at::Tensor& t) {
  if (t.numel() == 0) return 0;  // it has no memory, though its storage may have some
  const int64_t size = t.element_size(), n = static_cast<int64_t>(t.storage().nbytes()) / size - t.storage_offset();
  const auto* bytes = static_cast<const char*>(t.const_data_ptr());
  uint64_t hash = 1469598103934665603ull;
  for (int64_t i = 0; i < 256; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + i * (n - 1) / 255 * size, size);
    hash = (hash ^ bits) * 1099511628211ull;
  }
  return hash;
}

void drop_dead() {
  for (auto it = entries().begin(); it != entries().end();) it = it->second.storage.expired() ? entries().erase(it) : std::next(it);
}

}  // namespace

std::shared_ptr<const Packed> packed_of(
    const at::Tensor& parameter, const std::string& layout, Operand operand, const std::function<Packed()>& make) {
  const auto storage = parameter.storage().getWeakStorageImpl();
  const Key key{
      parameter.storage().unsafeGetStorageImpl(), parameter.storage_offset(), parameter.sizes().vec(), parameter.strides().vec(), layout,
      operand};
  const int64_t version = version_of(parameter);
  const uint64_t probe = probe_of(parameter);
  {
    const std::lock_guard<std::mutex> lock(guard);
    const auto found = entries().find(key);
    if (found != entries().end() && !found->second.storage.expired() && found->second.version == version && found->second.probe == probe)
      return found->second.packed;
  }
  auto packed = std::make_shared<const Packed>(make());
  const std::lock_guard<std::mutex> lock(guard);
  drop_dead();
  entries().insert_or_assign(key, Entry{storage, version, probe, packed});
  return packed;
}

int64_t packed_count() {
  const std::lock_guard<std::mutex> lock(guard);
  drop_dead();
  return static_cast<int64_t>(entries().size());
}

int64_t packed_bytes() {
  const std::lock_guard<std::mutex> lock(guard);
  drop_dead();
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries()) bytes += static_cast<int64_t>(entry.packed->data.nbytes());
  return bytes;
}

void clear_packed() {
  const std::lock_guard<std::mutex> lock(guard);
  entries().clear();
}

}  // namespace elmo_fast
