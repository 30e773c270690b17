"""Check an installed wheel from inside its environment, for try_wheel.py.

python inside_wheel.py digests: print {case: SHA-256 of its results} for the cases of every op, in every instruction set
and precision. python inside_wheel.py sets: run an op in every precision, in the set that this CPU gets, and print the
sets that it has. python inside_wheel.py readme CHECKOUT: run the lines of its README.md, in the current, empty folder.
"""

import hashlib
import json
import os
import pathlib
import sys

import torch

import elmo_fast
from elmo_fast.ops import _dispatch, _native, cases, highway


def digest(results: dict[str, torch.Tensor]) -> str:
    """Hash the bytes of tensors."""
    total = hashlib.sha256()
    for name, tensor in sorted(results.items()):
        total.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def digests() -> dict[str, str]:
    """Run all cases: results and gradients; in int8, which is for inference, results alone."""
    digests_by_name = {}
    for isa in _native.C.isas():
        _native.C.limit_isa(isa)
        for op, (build, rounds) in cases.CASES.items():
            precisions = ("float32", "bfloat16", "float16") if rounds else ("float32",)
            for precision in (*precisions, *(("int8",) if _dispatch.OPS[op].int8 else ())):
                for number, case in enumerate(build(cases.Draw())):
                    case = case._replace(differentiates=case.differentiates and precision != "int8")
                    how = {"backend": "native", "precision": precision}
                    digests_by_name[f"{op} {number}, {precision}, {isa}"] = digest(
                        cases.results(case, how, torch.device("cpu"))
                    )
    return digests_by_name


def check_precisions() -> None:
    """Raise AssertionError if a precision is further from float32 than its rounding explains."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(5, 64), [torch.randn(128, 64) / 8], [torch.randn(128)]
    expected = highway(x, weight, bias, backend="reference")
    for precision, largest in (("float32", 1e-5), ("bfloat16", 0.05), ("float16", 0.01), ("int8", 0.1)):
        error = (highway(x, weight, bias, backend="native", precision=precision) - expected).abs().max().item()
        assert error < largest, f"{precision}: {error}"


def check_readme(checkout: pathlib.Path) -> None:
    """Raise AssertionError if a block prints something else than the page says."""
    assert "site-packages" in elmo_fast.__file__, f"{elmo_fast.__file__} is not the wheel's"
    sys.path.append(str(checkout))
    from tests.support import snippets, weights

    folder = pathlib.Path.cwd()
    snippets.environment = lambda: dict(os.environ)  # no checkout, as tests have it
    sizes = {"cell": 1024, "proj": 128, "filters": snippets.ORIGINAL_FILTERS, "char_dim": 16, "n_highway": 1}
    weights.make_weights(folder, **sizes, scale=0.5)
    snippets.check((checkout / "README.md").read_text(encoding="utf-8"), "README.md", folder)


if __name__ == "__main__":
    assert _native.C is not None, _native.WHY_NOT
    if sys.argv[1] == "readme":
        check_readme(pathlib.Path(sys.argv[2]))
    elif sys.argv[1] == "sets":
        check_precisions()
        print(json.dumps(_native.C.isas()))
    else:
        print(json.dumps(digests()))
