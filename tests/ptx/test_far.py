"""Numbers of 32 bits decide no address in tensors of more than 2^31 elements."""

import pytest
import torch
import triton

from elmo_fast.ops import _triton
from tests.ptx import far, far_cases
from tests.ptx.program import PtxError


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")  # _weights.py's key
@pytest.mark.parametrize("name", far_cases.CASES)
def test_the_last_block_reaches_the_end_of_large_tensors(emulator, name):
    case = far_cases.CASES[name]
    found = far.launches(case.call)
    assert found.keys() > case.left_out.keys()
    for kernel, launch in found.items():
        if kernel not in case.left_out:
            values = case.of_kernel.get(kernel, case.values)
            for tensor, at in far.run(emulator, launch, values, first=kernel in case.reversed).items():
                assert (tensor in case.unread) if at is None else (at >= far.FAR), f"{kernel}: {tensor}, {at}"


@triton.jit
def writes_rows(out, width):
    triton.language.store(out + triton.language.program_id(0) * width, 1.0)


@pytest.mark.parametrize("rows", [600_000, 1_100_000])
def test_a_product_of_32_bits_is_seen(emulator, rows):
    """Outside the tensor or, past 2^32, at its beginning."""

    def call():
        _triton.launch(writes_rows, (rows,), torch.empty(rows, far_cases.WIDTH), far_cases.WIDTH)

    [launch] = far.launches(call).values()
    if rows < 2**20:
        with pytest.raises(PtxError, match="memory that is no argument's: byte -"):
            far.run(emulator, launch, {})
    else:
        assert far.run(emulator, launch, {})["out"] < far.FAR
