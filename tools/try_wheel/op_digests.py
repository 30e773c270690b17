"""Prints {call: SHA-256 of its results} for ops of the installed package, in every instruction set; for try_wheel.py"""

import hashlib
import json
import math

import torch

from elmo_fast.ops import _native

OPS = torch.ops.elmo_fast


def numbers(*shape: int) -> torch.Tensor:
    """The same for a shape, whatever was drawn before."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(math.prod(shape))) - 0.5


def digest(*tensors: torch.Tensor) -> str:
    """Of the bytes of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def of_precision(precision: str) -> dict[str, str]:
    """Results of the ops that multiply."""
    inputs, hidden, projection = [numbers(3, 5, 64)] * 2, [numbers(512, 64)] * 2, [numbers(64, 128)] * 2
    lstm = (inputs, hidden, hidden, [numbers(512)] * 2, projection, torch.tensor([5, 2, 4]))
    rest = (None, None, [], [False, True], 3.0, 3.0, True, precision, False)
    found = {
        "matmul": digest(OPS.matmul(numbers(70, 130), numbers(130, 90), precision)),
        "projected_lstm": digest(*OPS.projected_lstm(*lstm, *rest)[:3]),
        "highway": digest(
            OPS.highway(numbers(9, 64), [numbers(128, 64)], [numbers(128)], None, None, precision, False)[0]
        ),
    }
    if precision != "int8":
        ids, filters = torch.arange(84).view(7, 12) % 40, [numbers(32, 16, 1), numbers(64, 16, 3)]
        biases = [numbers(32), numbers(64)]
        found["char_cnn"] = digest(*OPS.char_cnn(ids, numbers(40, 16), filters, biases, False, precision, True))
        rows, words = (numbers(4, 32), numbers(12, 32), numbers(12), torch.arange(12)), (precision, 1 << 20)
        found["negative_sampling"] = digest(*OPS.negative_sampling(*rows, 0.5, True, *words, True))
        found["sampled_softmax"] = digest(*OPS.sampled_softmax(*rows, *words, True)[:2])
    return found


def others() -> dict[str, str]:
    """Results of the ops that do not."""
    layers, table, sums = [numbers(4, 33)] * 3, numbers(9, 8), torch.ones(9, 8)
    OPS.adagrad_rows_(table, sums, torch.tensor([1, 4]), numbers(2, 8), 0.1, None)
    return {
        "scalar_mix": digest(*OPS.scalar_mix(layers, torch.full((2, 3), 0.25), None, True, 1e-12)),
        "unique_rows": digest(*OPS.unique_rows(torch.arange(40).view(10, 4) % 8)),
        "log_uniform_sample": digest(*OPS.log_uniform_sample(64, 1000, 1, 2)),
        "adagrad_rows_": digest(table, sums),
    }


def copies_die() -> None:
    """A packed copy dies with its parameter, of which another torch may tell otherwise."""
    weight = torch.nn.Parameter(numbers(64, 32))
    OPS.highway(numbers(3, 32), [weight], [numbers(64)], None, None, "float32", False)
    kept = _native.C.packed_count()
    del weight
    assert _native.C.packed_count() == kept - 1


def main() -> None:
    """Runs everything."""
    assert _native.C is not None, _native.WHY_NOT
    found = others()
    for isa in _native.C.isas():
        _native.C.limit_isa(isa)
        for precision in ("float32", "bfloat16", "float16", "int8"):
            found |= {f"{name}, {precision}, {isa}": each for name, each in of_precision(precision).items()}
    copies_die()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
