"""The measurements: CONTRIBUTING.md, "Measure".

ELMO_FAST_ISA=avx2 holds torch and its libraries to AVX2 as well, in this process and in those that it starts. They read
the environment at their first use, so it is set before anything imports them.
"""

import os

if os.environ.get("ELMO_FAST_ISA") == "avx2":
    os.environ.update(
        ATEN_CPU_CAPABILITY="avx2",
        ONEDNN_MAX_CPU_ISA="AVX2",
        MKL_ENABLE_INSTRUCTIONS="AVX2",
        FBGEMM_ENABLE_INSTRUCTIONS="AVX2",
    )
