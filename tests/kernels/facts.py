"""What the assembler says of a compiled kernel. A change to this file makes every row of the golden tables stale."""

import os
import pathlib
import re
import subprocess
import tempfile

TENSOR_CORES = ("wgmma.mma_async", "tcgen05.mma", "mma.sync")
# Without `.rn` the assembler may make one fma of a product and a sum, in one kernel and not in its twin (docs/gpu.md).
CONTRACTIBLE = re.compile(r"\b(?:add|sub|mul)(?:\.ftz|\.sat)*\.(?:f16x2|f16|bf16x2|bf16|f32x2|f32|f64)\b")


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


def facts(made, capability):
    """Which tensor-core instruction is used, registers, bytes spilled and of shared memory of what Triton made, and how
    many of its sums and products the assembler may contract."""
    report = assembled(made.asm["ptx"], capability)
    used = [name for name in TENSOR_CORES if name in made.asm["ptx"]]
    return {
        "tensor_cores": used[0] if used else None,
        "registers": int(re.search(r"Used (\d+) registers", report)[1]),
        "spilled": int(re.search(r"(\d+) bytes spill stores", report)[1]),
        "shared": made.metadata.shared,
        "contractible": len(CONTRACTIBLE.findall(made.asm["ptx"])),
    }
