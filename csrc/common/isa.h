// The instruction sets that products are written for, each holding the ones before it.
#pragma once

#include <string>
#include <vector>

namespace elmo_fast {

enum class Isa { Generic, Avx2, Avx512, Avx512Vnni, Avx512Bf16, Amx };

// The newest that this CPU and system have, or the older one that ELMO_FAST_ISA or limit_isa names. Raises where ELMO_FAST_ISA names none
// or one that this CPU lacks.
Isa isa();
std::string isa_name();

// The names of those that this CPU has, oldest first.
std::vector<std::string> isa_names();

// For tests: products use this one from now on; "" takes the newest again.
void limit_isa(const std::string& name);

}  // namespace elmo_fast
