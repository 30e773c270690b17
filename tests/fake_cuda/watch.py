"""Records host code on fake tensors: launches, copies for which it waits, results that differ from the fakes.

`install` must run before elmo_fast is imported, whose registrations it watches.
"""

import collections

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Views, and memory that is not written: nothing is launched.
NO_LAUNCH = {
    "view", "detach", "t", "transpose", "select", "slice", "unbind", "_unsafe_view", "alias", "expand", "unsqueeze",
    "permute", "split_with_sizes", "split", "as_strided", "squeeze", "_reshape_alias", "chunk", "flatten", "narrow",
    "unfold", "diagonal", "lift_fresh", "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided",
    "_values", "_indices", "sparse_coo_tensor", "_sparse_coo_tensor_with_dims_and_tensors", "is_coalesced",
    "_sparse_coo_tensor_unsafe", "_coalesced_", "sym_size",
}  # fmt: skip
differences, waits, torch_launches, trace, calls = [], [], collections.Counter(), [], collections.Counter()


def tensors_of(value):
    """All tensors in a result or in arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for each in value for tensor in tensors_of(each)] if isinstance(value, list | tuple) else []


def numbers_of(value):
    """All numbers in arguments: a captured graph would hold them as they are."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [number for each in value for number in numbers_of(each)]
    return [value] if isinstance(value, int | float) else []


class Watching(TorchDispatchMode):
    """Counts what torch launches, and lists copies between host and device, for which the host waits."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        name = function._schema.name.partition("::")
        values, made = (sorted({t.device.type for t in tensors_of(x)}) for x in ((arguments, options or {}), result))
        views = name[2] in NO_LAUNCH or (
            name[2] == "reshape" and result.untyped_storage()._cdata == storage_of(arguments)
        )
        if name[0] == "aten" and not views and "cuda" in made:
            torch_launches[name[2]] += 1
        if name[2].startswith("_foreach") and "cuda" in values:
            torch_launches[name[2]] += len(arguments[0])  # at most
        trace.append(
            f"{function} {numbers_of([arguments, options])} {[facts(tensor) for tensor in tensors_of(result)]}"
        )
        asynchronous = (name[2] == "copy_" and len(arguments) > 2 and arguments[2]) or (options or {}).get(
            "non_blocking"
        )
        if name[2] in ("_to_copy", "copy_") and len({*values, *made}) > 1 and not asynchronous:
            waits.append(f"{function}: {values} to {made}")
        return result


def storage_of(arguments):
    """Return the storage of the first argument."""
    return arguments[0].untyped_storage()._cdata


def facts(tensor):
    """Return the properties that a fake result must share with the real one."""
    if tensor.is_sparse:
        return ["sparse", *facts(tensor._indices()), *facts(tensor._values())]
    return [list(tensor.shape), str(tensor.dtype), str(tensor.device), list(tensor.stride())]


def compared(register):
    """torch.library.register_fake, which also runs the host functions of each Triton op and compares."""

    def registering(qualified, fake=None, **options):
        namespace, _, name = str(qualified).partition("::")
        if namespace != "elmo_fast" or fake is None:
            return register(qualified, fake, **options)

        def both(*arguments, **named):
            from elmo_fast.ops import _triton

            if name not in _triton._undispatched or all(t.device.type != "cuda" for t in tensors_of(arguments)):
                return fake(*arguments, **named)
            expected = [facts(tensor) for tensor in tensors_of(fake(*arguments, **named))]
            with Watching():
                actual = [facts(tensor) for tensor in tensors_of(_triton.undispatched(name)(*arguments, **named))]
            calls[name] += 1
            if expected != actual:
                differences.append({"op": name, "fake": expected, "host": actual})
            return fake(*arguments, **named)

        return register(qualified, both, **options)

    return registering


def install():
    """Compares every fake that is registered from now on."""
    torch.library.register_fake = compared(torch.library.register_fake)
