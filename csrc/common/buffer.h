// Large buffers on huge pages, used again: a fresh 4 KiB page costs a fault for every 1024 floats, streamed weights a TLB entry each,
// and memory that went back to the system is cleared (in a virtual machine: fetched from the host) before it comes again.
#pragma once

#include "common/tensor.h"

namespace elmo_fast {

// empty(). From 2 MiB on, the memory is kept when the tensor dies, at most 1 GiB of it, and serves later buffers of about its size.
Tensor empty_buffer(IntArrayRef sizes, const Options& options);

int64_t idle_buffer_bytes();
void clear_idle_buffers();

}  // namespace elmo_fast
