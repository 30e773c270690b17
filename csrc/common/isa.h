// The instruction sets that products are written for, slowest first.
#pragma once

#include <string>
#include <vector>

namespace elmo_fast {

enum class Isa { Generic, Avx2, Avx2Vnni, Avx512, Avx512Vnni, Avx512Bf16, Amx };

// The fastest that this CPU and system have, or the slower one that ELMO_FAST_ISA or limit_isa names. Raises where ELMO_FAST_ISA names none
// or one that this CPU lacks.
Isa isa();
std::string isa_name();

// The names of those that this CPU has, slowest first.
std::vector<std::string> isa_names();

// For tests: products use this one from now on; "" takes the fastest again.
void limit_isa(const std::string& name);

}  // namespace elmo_fast
