// Packed copies of parameters, kept while the parameter lives and has not changed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/gemm.h"

namespace elmo_fast {

// The packed copy of `parameter` under `layout` (a name for the arrangement `make` produces). Made anew when the parameter's version
// counter moved, or a probe of its values differs (an edit through .data or a NumPy view moves no counter); dropped with its storage.
std::shared_ptr<const Packed> packed_of(
    const at::Tensor& parameter, const std::string& layout, Operand operand, const std::function<Packed()>& make);

int64_t packed_count();
int64_t packed_bytes();
void clear_packed();

}  // namespace elmo_fast
