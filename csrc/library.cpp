// All schemas on one screen; each op's folder holds its CPU kernels, each op's native.py its fake and its autograd.
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include "common/gemm.h"
#include "common/packed.h"

TORCH_LIBRARY(elmo_fast, m) {
  // char_cnn

  // highway

  // projected_lstm

  // scalar_mix

  // sampled_softmax
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "The CPU kernels of elmo_fast, registered as torch.ops.elmo_fast.*";
}
