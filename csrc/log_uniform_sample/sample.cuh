// Launching the sampler. No torch here.
#pragma once

#include <cuda_runtime_api.h>

#include "log_uniform_sample/schedule.h"

namespace elmo_fast::log_uniform {

// Bytes of global memory that Params::bitmap must have on the current device: 0 where the bitmap fits into shared memory.
cudaError_t workspace_bytes(int64_t num_words, size_t* bytes);

// Draws on `stream` of the current device. Waits for nothing; may be captured.
cudaError_t launch(const Params& params, cudaStream_t stream);

}  // namespace elmo_fast::log_uniform
