#include "common/isa.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "common/block_kernels.h"
#include "common/tiles.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace elmo_fast {
namespace {

constexpr std::array<const char*, 7> kNames = {"generic", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

#if defined(__x86_64__) && defined(__GNUC__)
bool has_avx_vnni() {  // a name that compilers' own test learned late
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

bool has(Isa isa) {
#if defined(__x86_64__) && defined(__GNUC__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::Generic:
      return true;
    case Isa::Avx2:
      return avx2;
    case Isa::Avx2Vnni:
      return avx2 && has_avx_vnni() && kAvx2VnniKernel != nullptr;
    case Isa::Avx512:
      return avx2 && __builtin_cpu_supports("avx512f");
    case Isa::Avx512Vnni:
      return has(Isa::Avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::Avx512Bf16:
      return has(Isa::Avx512Vnni) && __builtin_cpu_supports("avx512bf16");
    default:
      return has(Isa::Avx512Bf16) && has_tile_kernel();
  }
#else
  return isa == Isa::Generic;
#endif
}

Isa fastest() {
  auto found = Isa::Amx;
  while (!has(found)) found = static_cast<Isa>(static_cast<int>(found) - 1);
  return found;
}

Isa named(const std::string& name) {
  std::string known;
  for (const auto& each : isa_names()) {
    if (name == each) return static_cast<Isa>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
    known += (known.empty() ? "" : ", ") + each;
  }
  TORCH_CHECK_VALUE(false, "ELMO_FAST_ISA must be an instruction set that this CPU has (", known, "); got ", name);
}

Isa chosen() {
  const char* name = std::getenv("ELMO_FAST_ISA");
  return name == nullptr || *name == '\0' ? fastest() : named(name);
}

std::atomic<int> limit{-1};

}  // namespace

Isa isa() {
  static const Isa first = chosen();
  const int limited = limit.load(std::memory_order_relaxed);
  return limited < 0 ? first : static_cast<Isa>(limited);
}

std::string isa_name() { return kNames[static_cast<size_t>(isa())]; }

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (has(static_cast<Isa>(i))) names.emplace_back(kNames[i]);
  return names;
}

void limit_isa(const std::string& name) { limit.store(name.empty() ? -1 : static_cast<int>(named(name))); }

}  // namespace elmo_fast
