#include "common/operand.h"

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "common/tensor.h"
#include "common/tiles.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace elmo_fast {
namespace {

bool always() { return true; }

#if defined(__x86_64__)
// On an Intel CPU, pairs of bfloat16 (vdpbf16ps) gave 498 to 512 tokens/s at 32 sentences and 214 at one, widened weights 737 and 229 (float32: 743 to
// 808); with AMX, tiles serve. On AMD's, pairs are the fastest.
bool has_slow_pairs() { return __builtin_cpu_is("intel"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }
bool has_avx2_vnni() {  // a name that compilers' own test learned late
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
bool has_avx512() { return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_bf16() { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }
bool has_amx() { return has_avx512_bf16() && has_tile_kernel(); }
#else
bool has_slow_pairs() { return false; }
#endif

// Slowest first.
const InstructionSet kSets[] = {
    {"generic", always, kGenericKernels, nullptr, nullptr, false},
#if defined(__x86_64__)
    {"avx2", has_avx2, kAvx2Kernels, nullptr, nullptr, false},
    {"avx2_vnni", has_avx2_vnni, kAvx2Kernels, nullptr, kAvx2VnniKernel, false},
    {"avx512", has_avx512, kAvx512Kernels, nullptr, nullptr, false},
    {"avx512_vnni", has_avx512_vnni, kAvx512Kernels, nullptr, kAvx512VnniKernel, false},
    {"avx512_bf16", has_avx512_bf16, kAvx512Kernels, kAvx512Bf16Kernel, kAvx512VnniKernel, false},
    {"amx", has_amx, kAvx512Kernels, multiply_bfloat16_tiles, multiply_int8_tiles, true},
#endif
};

const InstructionSet* fastest() {
  const auto* set = std::end(kSets) - 1;
  while (!set->is_here() || (has_slow_pairs() && set->name == std::string_view("avx512_bf16"))) --set;
  return set;
}

const InstructionSet* named(const std::string& name) {
  std::string known;
  for (const auto& each : kSets) {
    if (!each.is_here()) continue;
    if (name == each.name) return &each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  ELMO_CHECK_VALUE(false, "ELMO_FAST_ISA must be an instruction set that this CPU has (", known, "); got ", name);
}

const InstructionSet* chosen() {
  const char* name = std::getenv("ELMO_FAST_ISA");
  return name == nullptr || *name == '\0' ? fastest() : named(name);
}

std::atomic<const InstructionSet*>& used() {
  static std::atomic<const InstructionSet*> set{chosen()};
  return set;
}

}  // namespace

const InstructionSet& isa() { return *used().load(std::memory_order_relaxed); }

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const auto& each : kSets)
    if (each.is_here()) names.emplace_back(each.name);
  return names;
}

void limit_isa(const std::string& name) { used().store(name.empty() ? chosen() : named(name)); }

}  // namespace elmo_fast
