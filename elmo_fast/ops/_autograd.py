"""Fakes and autograd of the registered ops, derived from the names in their schemas.

In the schema of `<op>_backward`, `grad` is the gradient of the first output of `<op>` and `d_<output>` the gradient of
any other output; `need_<input>` requests an input's gradient; every other argument is a saved input or output of
`<op>`. A result is named after the input whose gradient it is, with or without `d_`, and has that input's shape.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._schemas import NAMESPACE, arguments_of, overload


class Backward(NamedTuple):
    """Details of a backward op that its schema leaves open."""

    covers: Mapping[str, Sequence[str]] = {}
    """flag `need_...` -> the inputs whose gradients it requests, if it is not just the input that it names"""
    shapes: Callable[[Any], Mapping[str, Any]] | None = None
    """(arguments of the backward op) -> result -> its shape, shapes or tensor, for results unlike any argument"""
    finish: Callable[[Any, dict[str, Any], Set[str]], dict[str, Any]] | None = None
    """(arguments of the backward op, its results by name, inputs that need a gradient) -> the gradients by input; None:
    the results"""


def requires_grad(*tensors: Tensor | None) -> bool:
    """Return whether autograd needs a gradient of any of them, so that the forward pass must save tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _is_list(argument: Any) -> bool:
    return isinstance(argument.type, torch.ListType) and isinstance(argument.type.getElementType(), torch.TensorType)


def _holds_tensors(argument: Any) -> bool:
    kind = argument.type.getElementType() if isinstance(argument.type, torch.OptionalType) else argument.type
    return isinstance(kind, torch.TensorType)


def describe(
    name: str,
    fake: Callable[[Any], Any],
    backward: Backward | None = None,
    saved: Callable[[Any], list[Tensor]] | None = None,
) -> None:
    """Describe an op to torch: the shapes and dtypes of its results, and its autograd, on every device.

    fake(arguments): returns the results, given the arguments as a tuple with the schema's names. saved(arguments):
    returns what C++ saves for the backward pass, where the schema has `saved` as its last result. backward: None for an
    op that has no gradient.
    """
    for namespace in sorted({NAMESPACE, _triton.NAMESPACE}):
        register_fake(namespace, name, fake if saved is None else _with_saved(namespace, name, fake, saved))
        if backward is not None:
            formula = _Formula(overload(name, namespace), overload(f"{name}_backward", namespace), backward)
            register_fake(namespace, f"{name}_backward", formula.fake)
            _reject_gradients(namespace, f"{name}_backward")
            _register_autograd(namespace, name, formula.setup, formula.backward)


def _with_saved(namespace: str, name: str, fake: Any, by_native: Callable[[Any], list[Tensor]]) -> Callable[[Any], Any]:
    """Return a fake that appends what the backend of the arguments' device saves."""

    def both(arguments: Any) -> tuple[Any, ...]:
        outputs = fake(arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if not getattr(arguments, "save", True):
            return *outputs, []
        native = namespace == NAMESPACE and outputs[0].device.type != "cuda"
        return *outputs, (by_native if native else _triton.saved_by(name))(arguments)

    return both


def register_fake(namespace: str, name: str, fake: Callable[[Any], Any]) -> None:
    """Register the shapes and dtypes of an op's results; torch.func.vmap over it is an error."""
    arguments, qualified = arguments_of(name), f"{namespace}::{name}"
    torch.library.register_fake(qualified, lambda *args, **kwargs: fake(arguments(*args, **kwargs)))

    def reject_vmap(*args: Any, **kwargs: Any) -> None:
        raise ElmoFastError(
            f"{qualified} has no batching rule for torch.func.vmap: the kernels take batches as they are; give the op "
            'the whole batch, or use backend="reference"'
        )

    for key in ("FuncTorchBatched", "Batched"):  # the second one is torch.autograd's own, for is_grads_batched
        _fragment(namespace).impl(name, reject_vmap, key)


def _reject_gradients(namespace: str, name: str) -> None:
    """Make the backward pass of an op raise an error: a backward op cannot be differentiated again."""

    def reject(ctx: Any, needed: Sequence[Any], *grads: Any) -> Sequence[Any]:
        raise RuntimeError(
            f"{namespace}::{name} is not differentiable: the kernels have first derivatives only; for second "
            'derivatives use backend="reference"'
        )

    _register_autograd(namespace, name, lambda ctx, inputs, outputs: None, reject)


@functools.cache
def _fragment(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "FRAGMENT")


def _register_autograd(
    namespace: str,
    name: str,
    setup: Callable[[Any, Sequence[Any], Sequence[Any]], None],
    backward: Callable[..., Sequence[Any]],
) -> None:
    """Register the autograd of an op.

    torch.library.register_autograd supports `Tensor.backward` only: forward-mode AD through it silently loses its
    tangents, so that derivatives come out as zero, and torch.func.grad rejects it. Here forward mode is an error.
    torch.func.grad calls this kernel once per level, as it calls torch's own, with tensors that it unwraps below
    autograd: the node belongs to a single level, as torch calls it, and other levels keep their gradients.

    setup: called as setup(ctx, inputs, outputs), saves tensors.
    backward: called as backward(ctx, needed, *grads), returns a gradient per input, a list for a list of tensors;
        needed is nested likewise.
    """
    op = overload(name, namespace)
    schema = op._schema
    lists = [_is_list(argument) for argument in schema.arguments]
    defaults = [argument.default_value if argument.has_default_value() else None for argument in schema.arguments]
    listed_results = [_is_list(result) for result in schema.returns]

    def below(keyset: Any, inputs: Sequence[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)

    def forward(ctx: Any, keyset: Any, lengths: Sequence[int | None], results: list[int | None], *flat: Any) -> Any:
        inputs = _nested(flat, lengths)
        with _all_levels():
            outputs = below(keyset, inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        results += _lengths(outputs, listed_results)
        ctx.lengths, ctx.results = lengths, results
        setup(ctx, inputs, outputs)
        return tuple(_flat(outputs, listed_results))

    def node_backward(ctx: Any, *grads: Any) -> Any:
        gradients = backward(ctx, _nested(ctx.needs_input_grad[3:], ctx.lengths), *_nested(grads, ctx.results))
        return None, None, None, *_flat(gradients, lists)

    functions = {"forward": staticmethod(forward), "backward": staticmethod(node_backward)}
    node = type(f"{op._opname}_of_{op.namespace}", (torch.autograd.Function,), functions)
    # Function.apply would hand the call to torch.func again.
    apply: Any = super(torch.autograd.Function, node).apply  # type: ignore[misc]

    def run(keyset: Any, *args: Any) -> Any:
        if forward_ad._current_level < 0 and not torch.is_grad_enabled():
            with torch._C._AutoDispatchBelowAutograd():  # as `below`, without its call
                return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)
        inputs = (*args, *defaults[len(args) :])  # the dispatcher omits arguments that equal their defaults
        flat = _flat(inputs, lists)
        tensors = [each for each in flat if isinstance(each, Tensor)]
        if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
            raise ElmoFastError(
                f"{namespace}::{name} has no derivative in forward mode (torch.func.jvp, jacfwd, hessian or linearize, "
                "torch.autograd.forward_ad): the kernels have reverse mode only; use torch.func.vjp or grad, or "
                'backend="reference"'
            )
        if not requires_grad(*tensors):
            return below(keyset, args)
        results: list[int | None] = []
        with _single_level():
            outputs = apply(keyset, _lengths(inputs, lists), results, *flat)
        outputs = _nested(outputs, results)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    _fragment(namespace).impl(name, run, "Autograd", with_keyset=True)


def _single_level() -> contextlib.AbstractContextManager[Any]:
    """Allow torch.func to apply an autograd.Function, which it forbids for user-defined ones."""
    active = torch._C._are_functorch_transforms_active()
    return enable_single_level_autograd_function() if active else contextlib.nullcontext()


def _all_levels() -> contextlib.AbstractContextManager[Any]:
    """Let outer levels of torch.func record gradients, which is disabled in an autograd.Function."""
    levels = contextlib.ExitStack()
    if torch._C._are_functorch_transforms_active():
        levels.enter_context(torch.enable_grad())
        levels.enter_context(forward_ad._set_fwd_grad_enabled(True))
    return levels


def _flat(values: Sequence[Any], lists: Sequence[bool]) -> list[Any]:
    flat: list[Any] = []
    for value, is_list in zip(values, lists, strict=True):
        flat += value if is_list else [value]
    return flat


def _lengths(values: Sequence[Any], lists: Sequence[bool]) -> list[int | None]:
    return [len(value) if is_list else None for value, is_list in zip(values, lists, strict=True)]


def _nested(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    rest = iter(flat)
    return [next(rest) if n is None else list(itertools.islice(rest, n)) for n in lengths]


class _Formula:
    """Autograd of one op: what it saves, the arguments of its backward op, and the inputs that get its results."""

    def __init__(self, op: Any, backward_op: Any, backward: Backward) -> None:
        inputs, outputs = op._schema.arguments, [each.name for each in op._schema.returns]
        self.backward_op, self.more = backward_op, backward
        self.arguments = arguments_of(backward_op._opname)
        self.inputs = [each.name for each in inputs]
        self.results = [each.name.removeprefix("d_") for each in backward_op._schema.returns]
        known = [*self.inputs, *outputs]
        # Where each argument of the backward op comes from: an input, an output, a gradient or a flag.
        self.saved: list[tuple[int, str, bool, bool]] = []  # whether it is a list of tensors, or a tensor
        self.gradients: list[tuple[int, str, bool]] = []  # whether it may be None
        self.flags: list[tuple[int, list[int]]] = []
        for index, argument in enumerate(backward_op._schema.arguments):
            name = argument.name
            if name in known:
                self.saved.append((known.index(name), name, _is_list(argument), _holds_tensors(argument)))
            elif name.startswith("need_"):
                covered = backward.covers.get(name, [name.removeprefix("need_")])
                self.flags.append((index, [self.inputs.index(each) for each in covered]))
            elif name == "grad" or name.removeprefix("d_") in outputs:
                output = 0 if name == "grad" else outputs.index(name.removeprefix("d_"))
                self.gradients.append((output, name, isinstance(argument.type, torch.OptionalType)))
            else:
                raise RuntimeError(f"{backward_op}: {name} is no input, output or gradient of {op}; rebuild _C")
        self.other = [i for i in range(len(outputs)) if i not in [output for output, *_ in self.gradients]]
        self.other_lists = [_is_list(op._schema.returns[i]) for i in self.other]

    def setup(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        values, tensors = (*inputs, *outputs), []
        ctx.others = []  # numbers, strings, and the lengths of the lists of tensors
        for index, _, is_list, is_tensor in self.saved:
            value = values[index]
            if is_list:
                tensors += value
                ctx.others.append(len(value))
            elif is_tensor:
                tensors.append(value)
            else:
                ctx.others.append(value)
        ctx.shapes = [outputs[i].shape for i, *_ in self.gradients]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*_flat([outputs[i] for i in self.other], self.other_lists))
        ctx.save_for_backward(*tensors)

    def backward(self, ctx: Any, needed: Sequence[Any], *grads: Tensor | None) -> Sequence[Any]:
        gradients: list[Any] = [[None] * len(each) if isinstance(each, list) else None for each in needed]
        output_grads = [grads[i] for i, *_ in self.gradients]
        present = [grad for grad in output_grads if grad is not None]
        if not present:
            return gradients
        wanted = {i for i, each in enumerate(needed) if (any(each) if isinstance(each, list) else each)}
        arguments = self._arguments_of(ctx, wanted, output_grads, present[0])
        outputs = self.backward_op(*arguments)
        results = dict(zip(self.results, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
        if self.more.finish is not None:
            results = self.more.finish(arguments, results, {self.inputs[i] for i in wanted})
        for i, name in enumerate(self.inputs):
            if name in results and i in wanted:
                # An op's results may not overlap, so the gradients of a list may come as one tensor.
                one = isinstance(needed[i], list) and isinstance(results[name], Tensor)
                gradients[i] = list(results[name].unbind(0)) if one else results[name]
        return gradients

    def _arguments_of(self, ctx: Any, wanted: set[int], output_grads: Sequence[Tensor | None], some: Tensor) -> Any:
        tensors, others = iter(ctx.saved_tensors), iter(ctx.others)
        named: dict[str, Any] = {}
        for (_, name, optional), grad, shape in zip(self.gradients, output_grads, ctx.shapes, strict=True):
            named[name] = some.new_zeros(shape) if grad is None and not optional else grad
        for _, name, is_list, is_tensor in self.saved:
            if is_list:
                named[name] = list(itertools.islice(tensors, next(others)))
            else:
                named[name] = next(tensors if is_tensor else others)
        for index, covered in self.flags:
            named[self.arguments._fields[index]] = not wanted.isdisjoint(covered)
        return self.arguments(**named)

    def fake(self, arguments: Any) -> Any:
        """Return empty tensors for the backward op's results, shaped like the inputs; of size 0 if not needed."""
        others = {} if self.more.shapes is None else self.more.shapes(arguments)
        skipped = {
            self.inputs[i] for index, covered in self.flags if not arguments[index] for i in covered
        }  # fmt: skip
        tensors = []
        for name, result in zip(self.results, self.backward_op._schema.returns, strict=True):
            value = others[name] if name in others else getattr(arguments, name)
            if name in skipped or value is None:
                tensors.append([] if _is_list(result) else arguments[0].new_empty(0))
            elif _is_list(result):
                tensors.append([_like(each, arguments[0]) for each in value])
            else:
                tensors.append(_like(value, arguments[0]))
        return tuple(tensors) if len(tensors) > 1 else tensors[0]


def _like(value: Any, base: Tensor) -> Tensor:
    """Return a new tensor shaped like the tensor `value`, or of the shape `value` and the dtype of `base`."""
    return value.new_empty(value.shape) if isinstance(value, Tensor) else base.new_empty(value)
