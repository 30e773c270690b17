"""The launches of an op's host functions, on tensors without memory, with the specialisation of a real launch."""

import contextlib
import importlib
import types
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from elmo_fast.ops import _triton

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
        elif isinstance(value, tuple):
            signature[name] = tuple(_POINTERS[each.dtype] for each in value)
            attributes |= {(i, j): [["tt.divisibility", 16]] for j in range(len(value))}
        elif isinstance(value, bool):
            signature[name] = "u1"
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0 and not general:
                attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32"
    return signature, constants, attributes


class Launch(NamedTuple):
    """One launch: what ahead-of-time compilation needs to build the same kernel, and over which grid it runs."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    options: dict[str, Any]
    grid: tuple[int, ...] = ()


@contextlib.contextmanager
def recording():
    """Within it nothing is launched: a list has what would be, as on Hopper (for tensors of FakeTensorMode)."""
    launches = []

    def start(kernel, grid, arguments, constants, options):
        launches.append(Launch(kernel, arguments, constants, options, grid))

    replaced = {
        "start": start,
        "_launches_early": lambda tensor: True,
        # FakeTensorMode has no addmm of 16-bit operands into float32.
        "add_product": lambda *values, **options: None,
    }
    with mock.patch.multiple(_triton, **replaced):
        yield launches


def named(launch):
    """The kernel's name with those of its constants that are switches and on."""
    switches = [name for name, value in launch.constants.items() if value is True]
    return launch.kernel.fn.__name__ + (f"[{', '.join(switches)}]" if switches else "")


def recorded(call):
    """The launches that `call` asks for, on tensors without memory."""
    with FakeTensorMode(), torch.device("cuda"), WithoutCuda(), recording() as launches:
        call()
    return launches


def identity(launch):
    """Equal where two launches need the same kernel."""
    return repr((named(launch), *specialised(launch), launch.options))


@contextlib.contextmanager
def card(memory):
    """Within it host functions choose for a card with so many KiB of shared memory."""
    gpu = types.SimpleNamespace(shared_memory_per_block_optin=memory * 1024)
    _triton.shared_memory.cache_clear()
    with mock.patch.multiple(torch.cuda, is_available=lambda: True, get_device_properties=lambda device: gpu):
        for device in ("cuda", "cuda:0"):
            _triton.shared_memory(torch.device(device))  # asked once
    yield
    _triton.shared_memory.cache_clear()


def distinct(op, memory=227):
    """{"kernel[switches], label": launch} of the distinct kernels of an op in tests/kernels/launches.py."""
    actual, seen = {}, set()
    for label, call in getattr(importlib.import_module("tests.kernels.launches"), op)():
        with card(memory):
            launches = recorded(call)
        assert launches, f"{op}, {label}: nothing was launched"
        for launch in launches:
            name, key = f"{named(launch)}, {label}", identity(launch)
            if key in seen:
                continue
            seen.add(key)
            name += f" ({1 + sum(n.startswith(name) for n in actual)})" if name in actual else ""
            actual[name] = launch
    return actual
