#include "common/isa.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "common/tiles.h"

namespace elmo_fast {
namespace {

constexpr std::array<const char*, 6> kNames = {"generic", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

Isa newest() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) return Isa::Generic;
  if (!__builtin_cpu_supports("avx512f")) return Isa::Avx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::Avx512;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::Avx512Vnni;
  return has_tile_kernel() ? Isa::Amx : Isa::Avx512Bf16;
#else
  return Isa::Generic;
#endif
}

Isa named(const std::string& name) {
  std::string known;
  for (size_t i = 0; i <= static_cast<size_t>(newest()); ++i) {
    if (name == kNames[i]) return static_cast<Isa>(i);
    known += (i > 0 ? ", " : "") + std::string(kNames[i]);
  }
  TORCH_CHECK_VALUE(false, "ELMO_FAST_ISA must be an instruction set that this CPU has (", known, "); got ", name);
}

Isa chosen() {
  const char* name = std::getenv("ELMO_FAST_ISA");
  return name == nullptr || *name == '\0' ? newest() : named(name);
}

std::atomic<int> limit{-1};

}  // namespace

Isa isa() {
  static const Isa first = chosen();
  const int limited = limit.load(std::memory_order_relaxed);
  return limited < 0 ? first : static_cast<Isa>(limited);
}

std::string isa_name() { return kNames[static_cast<size_t>(isa())]; }

std::vector<std::string> isa_names() { return {kNames.begin(), kNames.begin() + static_cast<size_t>(newest()) + 1}; }

void limit_isa(const std::string& name) { limit.store(name.empty() ? -1 : static_cast<int>(named(name))); }

}  // namespace elmo_fast
