"""The products that ops share: any sizes and strides, each precision and instruction set; int8 to the bit."""

import random

import torch

from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.ops import _native
from elmo_fast.ops._precision import linear, operand
from tests.fuzz.judge import Wrong
from tests.fuzz.tensors import compare, kind, numbers, size, threads


def case(rng: random.Random) -> None:
    if _native.C is None:
        return
    threads(rng)
    rows, terms, columns = size(rng, 100), size(rng, 300), size(rng, 150)
    precision, values = rng.choice(INFERENCE_PRECISIONS), kind(rng)
    tensors = [numbers(rng, (rows, terms), values), numbers(rng, (columns, terms), values).t()]
    if rng.random() < 0.3:
        tensors[1] = tensors[1].contiguous()

    def call(t, backend, precision):
        a, b = t
        if backend == "native":
            return [torch.ops.elmo_fast.matmul(a, b, precision)]
        return [linear(a, operand(b.t(), precision), precision)]

    _native.C.limit_isa(rng.choice(_native.C.isas()))
    try:
        if precision != "int8":
            compare("products", call, tensors, rng, precision=precision, differentiate=False)
        elif not torch.equal(*(call(tensors, each, precision)[0].nan_to_num(3e38) for each in ("native", "reference"))):
            raise Wrong(f"products of int8 differ, {_native.C.isa()}")
    finally:
        _native.C.limit_isa("")
