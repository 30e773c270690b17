// Launching char_cnn's backward. No torch here.
#pragma once

#include <cuda_runtime_api.h>

#include "char_cnn/backward.h"

namespace elmo_fast::char_cnn {

// Floats of `table`, `filters` and `sums` together, in this order.
inline int64_t workspace_floats(const Params& p) { return arranged_count(p) + p.splits * p.characters * p.columns; }

// Runs all kernels on `stream` of the current device. Waits for nothing; may be captured.
cudaError_t launch(const Params& params, cudaStream_t stream);

}  // namespace elmo_fast::char_cnn
