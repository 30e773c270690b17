"""Runs training, evaluation and embedding on fake tensors of a CUDA device that pretends, and prints as JSON what the
host code did.

python -m tests.fake_cuda DEVICE PRECISION: every op's host functions really run, launches are recorded, and results are
compared with the registered fakes. Tensors have shapes and no values, so code that reads a value on the host
(`.item()`, `nonzero`, a boolean mask) fails; what copies one there is listed.
"""

import ctypes
import json
import os
import sys

from tests.standin import library


def main(device, precision):
    os.environ |= {"TRITON_INTERPRET": "0", "ELMO_FAST_CUDA_GRAPHS": "0"}
    # Before torch, which asks for a device's hooks once.
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    from tests.fake_cuda import watch

    watch.install()  # before elmo_fast
    from tests.fake_cuda import works

    print(json.dumps(works.all_works(device, precision)))


if __name__ == "__main__":
    main(*sys.argv[1:])
