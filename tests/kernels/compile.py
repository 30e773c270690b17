"""Compiles every kernel that an op launches at its production shapes, for GPUs that need not be there.

`python -m tests.kernels.compile OP [OP ...]` prints, per kernel and architecture, what the assembler says of it, as
JSON; with --write it becomes the golden table tests/kernels/<op>.json. Nothing is described twice: the op's own host
functions run on FakeTensorMode's CUDA tensors, `ops._triton.recording` keeps their launches, and those are compiled
with the specialisation that a real launch would have had.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import tempfile

os.environ["TRITON_INTERPRET"] = "0"

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from elmo_fast.ops import _triton

HERE = pathlib.Path(__file__).parent
ARCHITECTURES = (80, 90, 100)
TENSOR_CORES = ("wgmma.mma_async", "tcgen05.mma", "mma.sync")
_POINTERS = {
    torch.float64: "*fp64", torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16",
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8",
    torch.bool: "*i1",
}  # fmt: skip


class WithoutCuda(TorchFunctionMode):
    """Host functions may index and copy fake CUDA tensors, for which a torch built for CPUs has no device guard."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function is torch.Tensor.copy_:
            return arguments[0]
        if function is torch.Tensor.__getitem__:
            return viewed(*arguments)
        return function(*arguments, **(options or {}))


def viewed(tensor, index):
    """tensor[index] for whole numbers and slices, by views that need no device."""
    dimension = 0
    for each in index if isinstance(index, tuple) else (index,):
        if isinstance(each, slice):
            start, stop, _ = each.indices(tensor.shape[dimension])
            tensor, dimension = tensor.narrow(dimension, start, max(0, stop - start)), dimension + 1
        elif each is None:
            tensor, dimension = tensor.unsqueeze(dimension), dimension + 1
        else:
            tensor = tensor.select(dimension, each)
    return tensor


def specialised(launch):
    """(signature, constants, attributes) as Triton's own launcher would choose them for these arguments."""
    signature, constants, attributes = {}, dict(launch.constants), {}
    for i, name in enumerate(launch.kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[i]
        general = launch.kernel.params[i].do_not_specialize
        if value is None or (type(value) is int and value == 1 and not general):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = _POINTERS[value.dtype]
            attributes[(i,)] = [["tt.divisibility", 16]]
        elif isinstance(value, bool):
            signature[name] = "u1"
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0 and not general:
                attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32"
    return signature, constants, attributes


def assembled(ptx, capability):
    """What ptxas prints for this PTX; RuntimeError with its words when it refuses."""
    import triton

    folder = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    ptxas = folder / "ptxas-blackwell"
    arch = f"sm_{capability}" + ("a" if capability >= 90 else "")
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "kernel.ptx"
        path.write_text(ptx)
        done = subprocess.run(
            [ptxas if ptxas.exists() else folder / "ptxas", f"-arch={arch}", "-v", path, "-o", os.devnull],
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr


def built(launch, capability):
    """What Triton makes of a launch for one architecture: `asm` by stage, `metadata`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = specialised(launch)
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {**launch.options, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def compiled(launch, capability):
    """Which tensor-core instruction is used, registers, bytes spilled and of shared memory, for one architecture."""
    made = built(launch, capability)
    report = assembled(made.asm["ptx"], capability)
    used = [name for name in TENSOR_CORES if name in made.asm["ptx"]]
    return {
        "tensor_cores": used[0] if used else None,
        "registers": int(re.search(r"Used (\d+) registers", report)[1]),
        "spilled": int(re.search(r"(\d+) bytes spill stores", report)[1]),
        "shared": made.metadata.shared,
    }


def named(launch):
    """The kernel's name with those of its constants that are switches and on."""
    switches = [name for name, value in launch.constants.items() if value is True]
    return launch.kernel.fn.__name__ + (f"[{', '.join(switches)}]" if switches else "")


def recorded(call):
    """The launches that `call` asks for, on tensors without memory."""
    with FakeTensorMode(), torch.device("cuda"), WithoutCuda(), _triton.recording() as launches:
        call()
    return launches


def measure(op):
    """{"kernel[switches], label": {"sm_80": {...}, ...}} of the distinct kernels in tests/kernels/<op>.py.

    A module whose kernels do not fit every GPU names its ARCHITECTURES.
    """
    module = importlib.import_module(f"tests.kernels.{op}")
    architectures = getattr(module, "ARCHITECTURES", ARCHITECTURES)
    distinct, seen = {}, set()
    for label, call in module.launches():
        launches = recorded(call)
        assert launches, f"{op}, {label}: nothing was launched"
        for launch in launches:
            name, key = f"{named(launch)}, {label}", repr((named(launch), *specialised(launch), launch.options))
            if key in seen:
                continue
            seen.add(key)
            name += f" ({1 + sum(n.startswith(name) for n in distinct)})" if name in distinct else ""
            distinct[name] = launch
    return in_processes(distinct, architectures)


def in_processes(launches, architectures):
    """{name: {"sm_80": facts, ...}}, by as many processes as there are cores: forked, as kernels cannot be pickled."""
    global _launches
    _launches = launches
    jobs = [(name, arch) for name in launches for arch in architectures]
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        facts = dict(zip(jobs, pool.map(job, jobs, chunksize=1), strict=True))
    return {name: {f"sm_{arch}": facts[name, arch] for arch in architectures} for name in launches}


def job(asked):
    """What a process does: one kernel of `_launches` for one architecture."""
    name, arch = asked
    return compiled(_launches[name], arch)


def table(found):
    """The golden table: one line per kernel and architecture."""
    entries = []
    for name, each in found.items():
        lines = [f"  {json.dumps(arch)}: {json.dumps(facts)}" for arch, facts in each.items()]
        entries.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="+")
    parser.add_argument("--write", action="store_true", help="make what is found the golden table")
    arguments = parser.parse_args()
    for op in arguments.ops:
        found = measure(op)
        if arguments.write:
            (HERE / f"{op}.json").write_text(table(found), encoding="utf-8")
        print(json.dumps(found))


if __name__ == "__main__":
    main()
