"""Small programs in PTX: what the instructions compute, and that each wrong access and each race is an error."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.ptx.arithmetic import fused64
from tests.ptx.blocks import kernel
from tests.ptx.counts import Counts
from tests.ptx.launch import Launch, run
from tests.ptx.program import PtxError

REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %a<9>;"
AT_THREAD = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %a1, %r0, 4;
    ld.param.u64 %a0, [x];
    add.s64 %a2, %a0, %a1;
    shl.b32 %r2, %r0, 2;
"""
"""%r0 the thread, %r1 the block, %a0 where x begins, %a2 the thread's element of it, %r2 its byte in shared memory"""


def launch(body, x, threads=32, blocks=1, shared=0, seed=0, independent=False):
    text = f".entry k(.param .u64 x) {{ {REGISTERS} {AT_THREAD} {body} ret; }}"
    counts = Counts()
    made = Launch(kernel(text), (blocks, 1, 1), threads, shared, [("x", x)], independent)
    run(made, counts, np.random.default_rng(seed))
    return counts


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("xor.b32 %r3, %r0, 5;", [i ^ 5 for i in range(32)]),
        ("sub.s32 %r4, %r0, 16; shr.s32 %r3, %r4, 1;", [(i - 16) >> 1 for i in range(32)]),
        ("sub.s32 %r4, %r0, 16; div.s32 %r3, %r4, 3;", [int((i - 16) / 3) for i in range(32)]),
        ("sub.s32 %r4, %r0, 16; rem.s32 %r3, %r4, 3;", [int(np.fmod(i - 16, 3)) for i in range(32)]),
        ("mul.lo.s32 %r4, %r0, -99; mul.hi.u32 %r3, %r4, 99;", [-99 * i % 2**32 * 99 >> 32 for i in range(32)]),
        ("bfe.u32 %r3, %r0, 1, 2;", [i >> 1 & 3 for i in range(32)]),
        ("shl.b32 %r4, %r0, 28; bfe.s32 %r3, %r4, 28, 3;", [(i & 7) - 8 * (i >> 2 & 1) for i in range(32)]),
        ("popc.b32 %r3, %r0;", [i.bit_count() for i in range(32)]),
        ("prmt.b32 %r3, %r0, 258, 0x4051;", [2 << 24 | i << 16 | 1 << 8 for i in range(32)]),
        ("shfl.sync.bfly.b32 %r3, %r0, 3, 31, -1;", [i ^ 3 for i in range(32)]),
        ("shfl.sync.idx.b32 %r3, %r0, 7, 31, -1;", [7] * 32),
        ("shfl.sync.up.b32 %r3, %r0, 1, 0, -1;", [max(0, i - 1) for i in range(32)]),
        ("shfl.sync.down.b32 %r3, %r0, 1, 31, -1;", [min(31, i + 1) for i in range(32)]),
        ("redux.sync.add.s32 %r3, %r0, -1;", [496] * 32),
        ("redux.sync.max.s32 %r3, %r0, -1;", [31] * 32),
        ("setp.lt.s32 %p1, %r0, 4; selp.b32 %r3, 7, %r0, %p1;", [7 if i < 4 else i for i in range(32)]),
        ("mov.b32 %r3, 1; setp.ge.u32 %p1, %r0, 9; @%p1 bra E; mov.b32 %r3, 2; E:", [2] * 9 + [1] * 23),
        (
            "mov.b32 %r3, 0; L: add.s32 %r3, %r3, 1; setp.lt.s32 %p1, %r3, %r0; @%p1 bra L;",
            [max(1, i) for i in range(32)],
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_integers(body, wanted):
    x = torch.zeros(32, dtype=torch.int32)
    launch(body + "st.global.b32 [%a2], %r3;", x)
    assert x.tolist() == [w - 2**32 if w >= 2**31 else w for w in wanted]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("cvt.rn.bf16x2.f32 %r4, %r3, %r3; mov.b32 {%h1, %h2}, %r4; cvt.f32.bf16 %r5, %h2;", lambda x: x.bfloat16()),
        ("cvt.rn.f16.f32 %h1, %r3; cvt.f32.f16 %r5, %h1;", lambda x: x.half()),
        ("fma.rn.f32 %r5, %r3, %r3, %r3;", lambda x: (x.double() * x.double() + x.double()).float()),
        ("max.f32 %r5, %r3, 0f00000000;", lambda x: torch.fmax(x, torch.zeros(()))),
        ("max.NaN.f32 %r5, %r3, 0f00000000;", lambda x: torch.maximum(x, torch.zeros(()))),
        ("setp.ltu.f32 %p1, %r3, 0f00000000; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", lambda x: ~(x >= 0)),
        ("setp.lt.f32 %p1, %r3, 0f00000000; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", lambda x: x < 0),
        ("cvt.rzi.s32.f32 %r4, %r3; cvt.rn.f32.s32 %r5, %r4;", lambda x: x.nan_to_num(0).trunc()),
        ("cvt.rna.tf32.f32 %r5, %r3;", lambda x: (x.frexp()[0] * 2048).round().ldexp(x.frexp()[1] - 11)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_floats(body, wanted):
    x = torch.linspace(-40000.3, 39999.7, 32)
    x[5] = torch.nan
    y = x.clone()
    launch(f"ld.global.f32 %r3, [%a2]; {body} st.global.f32 [%a2], %r5;", y)
    torch.testing.assert_close(y, wanted(x).float(), rtol=0, atol=0, equal_nan=True)


def test_a_product_of_tensor_cores_through_ldmatrix():
    """x: A [16, 16] and B [8, 16] (its columns) in float16, then D [16, 8] float32."""
    x = torch.zeros(512)
    a, b = torch.randn(16, 16).half(), torch.randn(8, 16).half()
    x[:192] = torch.cat([a.reshape(-1), b.reshape(-1)]).view(torch.float32)
    launch(
        """
        add.s32 %r3, %r2, 0; ld.global.b32 %r4, [%a2]; st.shared.b32 [%r3], %r4;
        setp.lt.u32 %p1, %r0, 64; @%p1 ld.global.b32 %r5, [%a2+512]; @%p1 st.shared.b32 [%r3+512], %r5;
        bar.sync 0;
        setp.ge.u32 %p2, %r0, 32; @%p2 bra E;
        and.b32 %r6, %r0, 15; shl.b32 %r6, %r6, 5; shr.u32 %r7, %r0, 4; shl.b32 %r7, %r7, 4; add.s32 %r6, %r6, %r7;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r6];
        and.b32 %r8, %r0, 7; shl.b32 %r8, %r8, 5; shr.u32 %r9, %r0, 3; and.b32 %r9, %r9, 1; shl.b32 %r9, %r9, 4;
        add.s32 %r8, %r8, %r9;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r14, %r15}, [%r8+512];
        mov.b32 %r20, 0;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r16, %r17, %r18, %r19},
            {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%r20, %r20, %r20, %r20};
        shr.u32 %r21, %r0, 2; shl.b32 %r21, %r21, 5; and.b32 %r22, %r0, 3; shl.b32 %r22, %r22, 3;
        add.s32 %r21, %r21, %r22;
        cvt.u64.u32 %a3, %r21; add.s64 %a4, %a0, %a3;
        st.global.v2.b32 [%a4+1024], {%r16, %r17}; st.global.v2.b32 [%a4+1280], {%r18, %r19};
        E:
        """,
        x, threads=128, shared=768,
    )  # fmt: skip
    torch.testing.assert_close(x[256:384].reshape(16, 8), a.float() @ b.float().t(), rtol=1e-5, atol=1e-5)


ASYNC = (
    "cp.async.cg.shared.global [%r4], [%a3], 0x10; cp.async.commit_group; {wait} "
    "ld.shared.v4.b32 {{%r5, %r6, %r7, %r8}}, [%r4];"
)
TO = "shl.b32 %r4, %r2, 2; shl.b64 %a3, %a1, 2; add.s64 %a3, %a3, %a0; "


def test_a_copy_lands_when_it_is_waited_for():
    x = torch.arange(128.0)
    launch(
        TO + ASYNC.format(wait="cp.async.wait_group 0;") + "neg.f32 %r8, %r8; st.global.f32 [%a3+12], %r8;",
        x,
        shared=512,
    )
    assert x[3::4].tolist() == [-float(i) for i in range(3, 128, 4)]


@pytest.mark.parametrize(
    ("body", "message", "options"),
    [
        ("ld.global.b32 %r3, [%a2+128];", "no argument's", {}),
        ("ld.global.b32 %r3, [%a2+-4];", "no argument's", {}),
        ("ld.global.b32 %r3, [%a2+2];", "multiple of the 4 bytes", {}),
        ("st.global.b32 [%a2+4], %r0;", "no argument's", {}),
        ("st.shared.b32 [%r2+4], %r0;", "past", {"shared": 128}),
        ("ld.shared.b32 %r3, [%r2];", "never written", {"shared": 128}),
        (TO + ASYNC.format(wait=""), "not waited for", {"shared": 512}),
        (TO + ASYNC.format(wait="cp.async.wait_group 1;"), "not waited for", {"shared": 512}),
        ("st.global.b32 [%a2], %r3;", "not defined", {}),
        ("setp.lt.s32 %p1, %r0, 4; @%p1 mov.b32 %r3, 1; st.global.b32 [%a2], %r3;", "not defined", {}),
        ("setp.lt.s32 %p1, %r3, 4; @%p1 bra E; mov.b32 %r4, 1; E:", "not defined", {}),
        ("setp.lt.s32 %p1, %r0, 4; @%p1 bra E; redux.sync.add.s32 %r3, %r0, -1; E:", "part of a warp", {}),
        ("setp.lt.s32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra E; A: bar.sync 0; E:", "two barriers", {"threads": 64}),
        ("frobnicate.b32 %r3, %r0;", "no such instruction", {}),
        ("st.global.b32 [%a0], %r0;", "different numbers", {}),
        ("st.global.b32 [%a0], %r1;", "different numbers", {"blocks": 2}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_no_kernel_may_do(body, message, options):
    with pytest.raises(PtxError, match=message):
        launch(body, torch.zeros(128 if "cp.async" in body else 32), **options)


def test_fma_of_64_bits_is_rounded_once():
    """Against fractions, among them sums that a wider float would round twice, and cancellations."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 2000))
    z = np.where(np.arange(2000) % 2, -x * y, random.standard_normal(2000) * 2.0 ** random.integers(-70, 70, 2000))
    x[:2], y[:2], z[:2] = (1 + 2.0**-30, 2.0**30), (1 + 2.0**-30, 2.0**30 + 1), (2.0**52, 2.0**-60)
    wanted = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x, y, z, strict=True)]
    assert fused64(x, y, z).tolist() == wanted
    with np.errstate(all="ignore"):
        odd = fused64(np.array([np.inf, 2.0, 1e300, np.nan]), np.array([1.0, -np.inf, 1e300, 1.0]), np.ones(4))
    assert odd[:3].tolist() == [np.inf, -np.inf, np.inf]
    assert np.isnan(odd[3])


ATOMICS = {
    "add.u32 %r4, [0], 2": (64 * 2, None),
    "or.b32 %r4, [0], %r2": (63 * 4 | 128, None),
    "max.u32 %r4, [0], %r2": (63 * 4, None),
    "cas.b32 %r4, [0], 0, 9": (9, [0] + [9] * 63),
}
FILL = "mov.b32 %r3, 0; @%p1 st.shared.b32 [0], %r3;"


@pytest.mark.parametrize("atomic", ATOMICS)
@pytest.mark.parametrize("seed", [0, 1])
def test_atomics_of_shared_memory(atomic, seed):
    """Two warps change one place; what is read after the barrier is their sum, and each was given a number before."""
    x = torch.zeros(64, dtype=torch.int32)
    body = f"setp.eq.u32 %p1, %r0, 0; {FILL} bar.sync 0; atom.shared.{atomic}; st.global.b32 [%a2], %r4; bar.sync 0;"
    launch(f"{body} ld.shared.b32 %r5, [0]; @%p1 st.global.b32 [%a0], %r5;", x, threads=64, shared=4, seed=seed)
    total, given = ATOMICS[atomic]
    assert x[0] == total
    assert given is None or sorted(x[1:].tolist())[1:] == given[2:]


CHANGE = (
    "mov.b32 %r4, 0; st.shared.b32 [%r2], %r4; bar.sync 0; atom.shared.or.b32 %r5, [%r2], 1; {} "
    "xor.b32 %r3, %r2, {}; ld.shared.b32 %r6, [%r3]; bar.sync 0; st.shared.b32 [%r2], %r6;"
)
RACES = pytest.raises(PtxError, match="a race")


@pytest.mark.parametrize(
    ("apart", "independent", "outcome"),
    [(128, False, RACES), (4, True, RACES), (4, False, contextlib.nullcontext())],
    ids=["another warp's", "another thread's", "another thread's, in a warp that keeps together"],
)
def test_atomics_race_with_plain_reads_alone(apart, independent, outcome):
    options = {"threads": 64, "shared": 256, "independent": independent}
    launch(CHANGE.format("bar.sync 0;", apart), torch.zeros(64), **options)
    with outcome:
        launch(CHANGE.format("", apart), torch.zeros(64), **options)


def test_a_plain_read_after_another_blocks_atomic_is_a_race():
    """Whatever the atomic orders: the reader has acquired nothing."""
    body = "setp.eq.u32 %p2, %r1, 0; mov.b32 %r3, 1; @%p2 atom.global.acq_rel.gpu.add.u32 %r4, [%a0], %r3; "
    launch(body, torch.zeros(1), blocks=2)
    with pytest.raises(PtxError, match="32 reads of x"):
        launch(body + "@!%p2 ld.global.b32 %r5, [%a0];", torch.zeros(1), blocks=2)


STRUCT = """
    .extern .shared .align 4 .b8 dynamic[];
    .entry other(.param .u64 x) { .shared .align 4 .b8 big[4000]; ret; }
    .entry k(.param .align 8 .b8 p[24]) {
        .reg .b32 %r<9>; .reg .b64 %a<9>; .shared .align 4 .b8 fixed[8];
        ld.param.u64 %a0, [p+8]; mov.b64 %a1, p; ld.param.v2.u32 {%r1, %r2}, [%a1+16];
        mov.u32 %r3, fixed; mov.u32 %r4, dynamic; sub.s32 %r4, %r4, %r3; st.shared.b32 [dynamic], %r4;
        ld.shared.b32 %r5, [dynamic]; cvta.to.global.u64 %a2, %a0;
        st.global.b32 [%a2], %r1; st.global.b32 [%a2+4], %r2; st.global.b32 [%a2+8], %r5; """


@pytest.mark.parametrize(
    ("end", "message"), [("ret; }", None), ("ld.param.u32 %r6, [%a1+24]; ret; }", "parameters have 24 bytes")]
)
def test_a_struct_with_addresses_and_shared_memory_of_two_kinds(end, message):
    """What a launch gives lies behind the kernel's own; another kernel's takes nothing; lanes store the same."""
    x = torch.zeros(3, dtype=torch.int32)
    struct = np.array([1, x.data_ptr(), 5 | 6 << 32], np.uint64).tobytes()
    made = Launch(kernel(STRUCT + end, "k"), (1, 1, 1), 32, 4, [("p", struct), ("x", x)])
    if message is None:
        run(made, Counts(), np.random.default_rng(0))
        assert x.tolist() == [5, 6, 8]
    else:
        with pytest.raises(PtxError, match=message):
            run(made, Counts(), np.random.default_rng(0))


def test_one_tensor_is_not_reached_from_another():
    """Halves of one storage, one after the other in the host's memory."""
    both = torch.zeros(64)
    text = f".entry k(.param .u64 x, .param .u64 y) {{ {REGISTERS} {AT_THREAD} ld.global.b32 %r3, [%a2+128]; ret; }}"
    arguments = [("x", both[:32]), ("y", both[32:])]
    with pytest.raises(PtxError, match="byte 128 of x, which has 128"):
        run(Launch(kernel(text), (1, 1, 1), 32, 0, arguments), Counts(), np.random.default_rng(0))


EXCHANGE = (
    "st.shared.b32 [%r2], %r0; {0} xor.b32 %r3, %r2, 128; ld.shared.b32 %r4, [%r3]; {1} st.shared.b32 [%r2], %r4;"
)


@pytest.mark.parametrize(
    ("barriers", "fine"), [(("bar.sync 0;",) * 2, True), (("bar.sync 0;", ""), False), (("", "bar.sync 0;"), False)]
)
def test_warps_that_exchange_need_barriers(barriers, fine):
    def go():
        launch(EXCHANGE.format(*barriers), torch.zeros(64), threads=64, shared=256)

    if fine:
        go()
    else:
        with pytest.raises(PtxError, match=r"a race|never written"):
            go()


# Each block writes x[1 + its number] and counts itself at x[0]; the last to arrive adds both into x[3].
LAST_ADDS = """
    setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p3, %r0, 40;
    add.s32 %r4, %r1, 1; mul.wide.u32 %a3, %r4, 4; add.s64 %a3, %a0, %a3; mov.b32 %r6, 77;
    @%p3 st.global.b32 [%a3], %r6; {before}
    mov.b32 %r7, 1; @%p1 atom.global.{scope}.{order}.add.u32 %r8, [%a0], %r7; @%p1 st.shared.b32 [0], %r8; {after}
    ld.shared.b32 %r3, [0]; setp.ne.s32 %p4, %r3, 1; @%p4 bra E;
    @%p3 ld.global.b32 %r5, [%a0+4]; @%p3 ld.global.b32 %r6, [%a0+8]; add.s32 %r5, %r5, %r6;
    @%p3 st.global.b32 [%a0+12], %r5;
    E:
"""
RIGHT = {"before": "bar.sync 0;", "after": "bar.sync 0;", "scope": "gpu", "order": "acq_rel"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"before": ""},
        {"after": ""},
        {"order": "release"},
        {"order": "acquire"},
        {"order": "relaxed"},
        {"scope": "cta"},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_the_last_block_reads_what_the_others_wrote(change, seed):
    """Right as it stands, a race with any part of it missing, whatever block comes first."""
    x = torch.zeros(4, dtype=torch.int32)

    def go():
        launch(LAST_ADDS.format(**RIGHT | change), x, 64, 2, 16, seed)

    if change:
        with pytest.raises(PtxError, match=r"a race|never written"):
            go()
    else:
        go()
        assert x.tolist() == [2, 77, 77, 154]


def test_what_is_counted():
    """A warp's 32 floats in a row are four sectors, one float for all is one, floats far apart are a sector each."""
    x = torch.zeros(1024)
    assert launch("ld.global.b32 %r3, [%a2];", x).sectors_read == 4
    assert launch("ld.global.b32 %r3, [%a0];", x).sectors_read == 1
    assert launch("shl.b64 %a3, %a1, 4; add.s64 %a3, %a3, %a0; ld.global.b32 %r3, [%a3];", x).sectors_read == 32
    counts = launch("st.global.b32 [%a2], %r0;", x, threads=64)
    assert (counts.sectors_read, counts.sectors_written, counts.launches) == (0, 8, 1)


def test_what_computes_gives_the_canonical_nan():
    """Not that of an operand: sums of a butterfly are equal in all lanes (PTX ISA, floating-point instructions)."""
    x = torch.full((32,), float("nan")).copysign(torch.arange(32) % 2 - 0.5)
    launch("ld.global.f32 %r3, [%a2]; add.f32 %r5, %r3, 0f3F800000; st.global.f32 [%a2], %r5;", x)
    assert x.view(torch.int32).tolist() == [0x7FFFFFFF] * 32
