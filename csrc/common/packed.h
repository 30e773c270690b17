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
    const Tensor& parameter, const std::string& layout, Operand operand, const std::function<Packed()>& make);

// torch's stable ABI has no weak reference to a storage: Python keeps one (elmo_fast/_C.py) and tells when it dies. Until Python has said
// that it does, no copy is kept.
void hear_of_deaths();
void forget_packed(const void* storage);

int64_t packed_count();
int64_t packed_bytes();
void clear_packed();

}  // namespace elmo_fast
