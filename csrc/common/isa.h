// The instruction sets that products are written for: one table.
#pragma once

#include <string>
#include <vector>

#include "common/block_kernels.h"

namespace elmo_fast {

struct InstructionSet {
  const char* name;
  bool (*is_here)();  // whether this CPU and system have it
  const BlockKernels& kernels;
  BlockKernel bfloat16_pairs, int8_quads;  // null: the widened kernels serve
  bool tiles;                              // whether these two are those of tiles.h
};

// The fastest that this CPU and system have, or the slower one that ELMO_FAST_ISA or limit_isa names. Raises where ELMO_FAST_ISA names none
// or one that this CPU lacks.
const InstructionSet& isa();
std::string isa_name();

// The names of those that this CPU has, slowest first.
std::vector<std::string> isa_names();

// For tests: products use this one from now on; "" takes the fastest again.
void limit_isa(const std::string& name);

}  // namespace elmo_fast
