"""Input of the compiler for a launch, and a digest of it: equal digests mean equal machine code.

The first thing `triton.compile` does with a kernel's Python is to turn it into TTIR, in hundredths of a second; what
follows (minutes for all kernels) sees only that TTIR, the options, the target, the environment and itself. Callees,
global constants and specialisation are in the TTIR; comments and line numbers are not. Callees go by their names
alone: a kernel that moves to another file stays the same.
"""

import hashlib
import pathlib
import re
from unittest import mock

from triton import __version__
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from tests.kernels.launch import specialised

HERE = pathlib.Path(__file__).parent
MEASURED_BY = (HERE / "facts.py").read_text(encoding="utf-8")


def source_of(launch):
    """The kernel with what it is specialised on."""
    signature, constants, attributes = specialised(launch)
    return ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)


def target_and_options(launch, capability):
    return GPUTarget("cuda", capability, 32), {**launch.options, "enable_fp_fusion": False}


def digests(launch, capabilities):
    """{capability: 16 hex digits of all that decides a row of the golden table, the code that measures it included}.

    The TTIR is made once for those before Hopper and once for the others: no kernel asks more of the GPU that it is
    compiled for (test_compile.py).
    """
    codes = {}
    for capability in capabilities:
        if (capability >= 90) not in codes:
            codes[capability >= 90] = ttir(launch, capability)
    return {capability: digest(launch, capability, codes[capability >= 90]) for capability in capabilities}


def compiling_for(target):
    """Within it kernels that ask for the GPU see `target`: Triton asks the driver, of which there is none here."""
    return mock.patch("triton.language.target_info.current_target", __triton_builtin__=True, return_value=target)


def ttir(launch, capability):
    """The kernel as the compiler sees it, as text, without lines, files and the modules of callees."""
    target, options = target_and_options(launch, capability)
    backend = make_backend(target)
    options = backend.parse_options(options)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with compiling_for(target):
        module = source_of(launch).make_ir(
            target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
    return re.sub(r'(@"?)elmo_fast(?:\.\w+)*\.', r"\1", module.str_nodebug())


def digest(launch, capability, code):
    """16 hex digits of a kernel's TTIR, what it is compiled with, and what measures it."""
    target, options = target_and_options(launch, capability)
    backend = make_backend(target)
    environment = sorted(get_cache_invalidating_env_vars().items())
    parts = (code, backend.parse_options(options).hash(), target, environment, __version__, backend.hash())
    parts += (MEASURED_BY,)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
