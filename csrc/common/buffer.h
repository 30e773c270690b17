// Large buffers on huge pages, used again: a fresh 4 KiB page costs a fault for every 1024 floats, streamed weights a TLB entry each,
// and memory that went back to the system is cleared (in a virtual machine: fetched from the host) before it comes again.
#pragma once

#include <ATen/ATen.h>

namespace elmo_fast {

// at::empty. From 2 MiB on, the memory is kept when the tensor dies, at most 1 GiB of it, and serves later buffers of about its size.
at::Tensor empty_buffer(at::IntArrayRef sizes, const at::TensorOptions& options);

int64_t idle_buffer_bytes();
void clear_idle_buffers();

}  // namespace elmo_fast
