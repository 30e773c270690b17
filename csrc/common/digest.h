// A 64-bit digest of a dense tensor's numbers: equal for equal bits, and for other bits different except once in 2^64.
#pragma once

#include "common/tensor.h"

namespace elmo_fast {

// Whether its numbers fill one piece of memory, in whatever order of dimensions.
bool is_dense(const Tensor& tensor);

uint64_t digest_of(const void* data, int64_t bytes);
uint64_t digest_of(const Tensor& tensor);
// The same of 256 numbers spread over it, its first and last among them.
uint64_t sampled_digest_of(const Tensor& tensor);

}  // namespace elmo_fast
