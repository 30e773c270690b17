"""The golden table of an op: a line per kernel, with what a person compares and a digest of everything else.

A group of architectures has the warps that fit on a multiprocessor at once (registers and shared memory matter only as
far as they change these), the tensor-core instruction, and what must not be: bytes spilled, accesses to memory before
the wait for the launch before, sums and products that the assembler may contract.
"""

import hashlib
import json

ARCHITECTURES = ("sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
# Of a multiprocessor: warps, blocks, bytes of shared memory (CUDA C++ Programming Guide, compute capabilities). Each of
# its four parts has 16,384 registers, of which a warp takes multiples of 256.
LIMITS = {"sm_80": (64, 32, 164 << 10), "sm_86": (48, 16, 100 << 10), "sm_90": (64, 32, 228 << 10),
          "sm_100": (64, 32, 228 << 10), "sm_120": (48, 24, 100 << 10)}  # fmt: skip
SYSTEM = 1024  # bytes of shared memory that each block takes besides its own


def occupancy(arch, registers, shared, warps):
    """Return how many warps a multiprocessor runs at once, 0 if a block is too large; warps: of a block."""
    most, blocks, memory = LIMITS[arch]
    of_registers = 4 * (16384 // (-(-registers // 8) * 256))
    return warps * min(blocks, most // warps, of_registers // warps, memory // (shared + SYSTEM))


def row(facts, arch, warps):
    """Return what the table has of a compiled kernel, without what is as it should be."""
    rest = {name: value for name, value in facts.items() if name not in ("registers", "shared") and value}
    return {"warps": occupancy(arch, facts["registers"], facts["shared"], warps), **rest}


def joined(digests):
    """Return one digest for all architectures of a kernel."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def read(path):
    """{"kernel[switches], label": {"digest": ..., "sm_80": row, ...}}."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name: _each(entry) for name, entry in entries.items()}


def _each(entry):
    return {arch: value for archs, value in entry.items() for arch in archs.split()}


def text(entries):
    """Return the table: architectures with equal rows are named together."""
    lines = []
    for name, entry in entries.items():
        grouped = {}
        for arch in filter(entry.get, ARCHITECTURES):
            grouped.setdefault(json.dumps(entry[arch]), []).append(arch)
        line = {"digest": entry["digest"]} | {" ".join(archs): json.loads(value) for value, archs in grouped.items()}
        lines.append(f" {json.dumps(name)}: {json.dumps(line)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
