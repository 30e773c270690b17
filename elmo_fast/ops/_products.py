"""What multiplies matrices on this CPU: one table for each instruction set and precision."""

from elmo_fast.ops import _native

_WIDENED = "16-bit weights, widened to float32 in registers: half of float32's memory traffic, its arithmetic"
_FLOAT32 = {
    "generic": "vectors of 16 bytes, which every CPU has",
    "avx2": "AVX2 and FMA",
    "avx2_vnni": "AVX2 and FMA",
    "avx512": "AVX-512",
    "avx512_vnni": "AVX-512",
    "avx512_bf16": "AVX-512",
    "amx": "AVX-512",
}
INSTRUCTION_SETS = tuple(_FLOAT32)  # as csrc/common/isa.h orders them, slowest first
_BFLOAT16 = {
    "avx512_bf16": "pairs of bfloat16 (AVX512_BF16): half of float32's memory traffic, twice its arithmetic",
    "amx": "tiles of bfloat16 (AMX): half of float32's memory traffic, many times its arithmetic",
}
_BYTES = "bytes widened to 16 bits (AVX2): a quarter of float32's memory traffic, about its arithmetic"
_VNNI = "bytes (VNNI): a quarter of float32's memory traffic, four times its arithmetic"
_INT8 = {
    "generic": "one column at a time: slower than float32",
    "avx2": _BYTES,
    "avx2_vnni": _VNNI,
    "avx512": _BYTES,
    "avx512_vnni": _VNNI,
    "avx512_bf16": _VNNI,
    "amx": _VNNI,
}
_CPUS = {  # the first that had it
    "avx2": "Intel Haswell, AMD Zen",
    "avx2_vnni": "Intel Alder Lake, AMD Zen 5",
    "avx512": "Intel Skylake-SP, AMD Zen 4",
    "avx512_vnni": "Intel Cascade Lake, AMD Zen 4",
    "avx512_bf16": "Intel Cooper Lake, AMD Zen 4",
    "amx": "Intel Sapphire Rapids",
}


def is_faster_on_cpu(precision: str) -> bool:
    """Whether this CPU multiplies many rows of a 16-bit precision faster than float32."""
    return precision == "bfloat16" and _native.C is not None and _native.C.isa() in _BFLOAT16


def products_on_cpu(precision: str) -> str:
    """What computes the matrix products of a precision on this CPU, in words."""
    if _native.C is None:
        if precision == "float32":
            return "torch"
        how = "multiplied in float64" if precision == "int8" else "then multiplied in float32: no faster than float32"
        return f"operands rounded, {how}"
    isa = _native.C.isa()
    if precision == "int8":
        return _INT8[isa]
    if precision == "float32":
        return _FLOAT32[isa]
    return _BFLOAT16[isa] if is_faster_on_cpu(precision) else _WIDENED


def newer_instruction_sets() -> list[str]:
    """What each instruction set newer than the one in use would change, one line each."""
    if _native.C is None:
        return []
    current = _native.C.isa()
    lines = []
    for name in INSTRUCTION_SETS[INSTRUCTION_SETS.index(current) + 1 :]:
        gains = [
            f"{precision}: {table[name]}"
            for precision, table in (("float32", _FLOAT32), ("bfloat16", _BFLOAT16), ("int8", _INT8))
            if name in table and table[name] != table.get(current)
        ]
        lines.append(f"{name} ({_CPUS[name]} and newer): {'; '.join(gains)}")
    return lines
