"""Fakes and autograd of the registered ops, derived from the names in their schemas.

In the schema of `<op>_backward`, `grad` is the gradient of the first output of `<op>` and `d_<output>` the gradient of
any other output; `need_<input>` requests an input's gradient; every other argument is a saved input or output of
`<op>`. A result is named after the input whose gradient it is, with or without `d_`, and has that input's shape.

Where gradients are needed an op runs in an autograd.Function: applied in Python, where torch.func sees it, and by
torch's dispatcher where an op itself is called: from torch.ops, and by torch.compile, which takes an op as it is.
"""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._schemas import LIBRARY, NAMESPACE, arguments_of, overload


class Backward(NamedTuple):
    """Details of a backward op that its schema leaves open."""

    covers: Mapping[str, Sequence[str]] = {}
    """flag `need_...` -> the inputs whose gradients it requests, if it is not just the input that it names"""
    shapes: Callable[[Any], Mapping[str, Any]] | None = None
    """(arguments of the backward op) -> result -> its shape, shapes or tensor, for results unlike any argument"""
    finish: Callable[[Any, dict[str, Any], Set[str]], dict[str, Any]] | None = None
    """(arguments of the backward op, its results by name, inputs that need a gradient) -> the gradients by input; None:
    the results"""


FORMULAS: dict[str, "Formula"] = {}
"""namespace::op -> the op with its gradients"""


def requires_grad(*tensors: Tensor | None) -> bool:
    """Return whether autograd needs a derivative of any of them, so that the forward pass must save tensors."""
    if forward_ad._current_level >= 0:  # a tangent would be lost in silence; an autograd.Function refuses it
        return True
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


def register_op(
    name: str,
    fake: Callable[[Any], Any],
    backward: Backward | None = None,
    saved: Callable[[Any], list[Tensor]] | None = None,
) -> None:
    """Describe an op to torch: the shapes and dtypes of its results, and its gradients, on every device.

    fake(arguments): returns the results, given the arguments as a tuple with the schema's names. saved(arguments):
    returns what C++ saves for the backward pass, where the schema has `saved` as its last result. backward: None for an
    op that has no gradient.
    """
    for namespace in sorted({NAMESPACE, _triton.NAMESPACE}):
        register_fake(namespace, name, fake if saved is None else _with_saved(namespace, name, fake, saved))
        if backward is not None:
            formula = Formula(namespace, name, backward)
            register_fake(namespace, f"{name}_backward", formula.fake)
            FORMULAS[f"{namespace}::{name}"] = formula
            _library(namespace).impl(name, formula, "Autograd")


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


def _library(namespace: str) -> torch.library.Library:
    return LIBRARY if namespace == NAMESPACE else _triton.LIBRARY


def _refuse_vmap(*args: Any, **kwargs: Any) -> Any:
    raise ElmoFastError(
        "an op of elmo_fast has no batching rule for torch.func.vmap: the kernels take batches as they are; give the "
        'op the whole batch, or use backend="reference"'
    )


def register_fake(namespace: str, name: str, fake: Callable[[Any], Any]) -> None:
    """Register the shapes and dtypes of an op's results; torch.func.vmap over it is an error."""
    arguments, library = arguments_of(name), _library(namespace)
    torch.library.register_fake(f"{namespace}::{name}", lambda *args, **kwargs: fake(arguments(*args, **kwargs)))
    for key in ("FuncTorchBatched", "Batched"):  # the second one is torch.autograd's own, for is_grads_batched
        library.impl(name, _refuse_vmap, key)


class _Once(torch.autograd.Function):
    """Returns the first `count` of some tensors, the results of a backward op, and refuses to differentiate them."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(op: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.op = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            f"{ctx.op} is not differentiable: the kernels have first derivatives only; for second derivatives use "
            'backend="reference"'
        )


class _Call(torch.autograd.Function):
    """Calls the op of a `Formula` whose gradients are needed; lists of tensors are flattened."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        formula, lengths, *flat = arguments
        with torch._C._AutoDispatchBelowAutograd():
            outputs = formula.op(*_nested(flat, lengths))
        return tuple(_flat(outputs if isinstance(outputs, tuple) else (outputs,), formula.output_lists))

    @staticmethod
    def setup_context(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
        ctx.formula, ctx.lengths = inputs[:2]
        ctx.formula.setup(ctx, _nested(inputs[2:], ctx.lengths), ctx.formula.outputs_of(output))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        gradients = ctx.formula.backward(ctx, _nested(ctx.needs_input_grad[2:], ctx.lengths), *grads)
        return None, None, *_flat(gradients, ctx.formula.input_lists)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise ElmoFastError(
            f"{ctx.formula.op} has no derivative in forward mode (torch.func.jvp, jacfwd, hessian or linearize, "
            "torch.autograd.forward_ad): the kernels have reverse mode only; use torch.func.vjp or grad, or "
            'backend="reference"'
        )


_Call.forward.__signature__ = inspect.signature(_Call.forward)  # type: ignore[attr-defined]  # `apply` asks at each call


def _lengths(values: Sequence[Any], lists: Sequence[bool]) -> list[int | None]:
    return [len(value) if is_list else None for value, is_list in zip(values, lists, strict=True)]


def _flat(values: Sequence[Any], lists: Sequence[bool]) -> list[Any]:
    flat: list[Any] = []
    for value, is_list in zip(values, lists, strict=True):
        flat += value if is_list else [value]
    return flat


def _nested(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    rest = iter(flat)
    return [next(rest) if n is None else list(itertools.islice(rest, n)) for n in lengths]


class Formula:
    """An op with its autograd: what it saves, the arguments of its backward op, and the inputs that get its results."""

    def __init__(self, namespace: str, op: str, backward: Backward) -> None:
        self.op, self.backward_op, self.more = overload(op, namespace), overload(f"{op}_backward", namespace), backward
        self.backward_arguments = arguments_of(f"{op}_backward")
        inputs, outputs = self.op._schema.arguments, [each.name for each in self.op._schema.returns]
        self.defaults = [argument.default_value for argument in inputs]
        self.inputs = [each.name for each in inputs]
        self.names = [*self.inputs, *outputs]
        self.save = self.inputs.index("save") if "save" in self.inputs else None
        self.input_lists = [_is_list(argument) for argument in inputs]
        self.output_lists = [_is_list(result) for result in self.op._schema.returns]  # what the op saved is last
        self.results = [each.name.removeprefix("d_") for each in self.backward_op._schema.returns]
        self.result_lists = [_is_list(each) for each in self.backward_op._schema.returns]
        # Where each argument of the backward op comes from: a saved tensor, another value, a gradient or a flag.
        self.tensors: list[str] = []
        self.tensor_lists: list[bool] = []
        self.others: list[str] = []
        self.gradients: dict[str, tuple[int, bool]] = {}  # the output, and whether it may be None
        self.flags: dict[str, list[int]] = {}  # the inputs that it covers
        for argument in self.backward_op._schema.arguments:
            name = argument.name
            if name in self.names and _holds_tensors(argument):
                self.tensors.append(name)
                self.tensor_lists.append(_is_list(argument))
            elif name in self.names:
                self.others.append(name)
            elif name.startswith("need_"):
                covered = backward.covers.get(name, [name.removeprefix("need_")])
                self.flags[name] = [self.inputs.index(each) for each in covered]
            else:
                output = 0 if name == "grad" else outputs.index(name.removeprefix("d_"))
                self.gradients[name] = output, isinstance(argument.type, torch.OptionalType)
        with_gradients = {output for output, _ in self.gradients.values()}
        self.without_gradients = [i for i in range(len(outputs)) if i not in with_gradients]

    def __call__(self, *arguments: Any) -> Any:
        """Call the op, with gradients if any are needed. torch's dispatcher calls this too, where the op is called."""
        needed = self.save is None or arguments[self.save]
        if needed and self.save is None:
            flat = _flat(arguments, self.input_lists[: len(arguments)])  # without arguments that equal their defaults
            needed = requires_grad(*[each for each in flat if isinstance(each, Tensor)])
        if not needed:
            with torch._C._AutoDispatchBelowAutograd():
                return self.op(*arguments)
        arguments = (*arguments, *self.defaults[len(arguments) :])
        lengths = _lengths(arguments, self.input_lists)
        outputs = self.outputs_of(_Call.apply(self, lengths, *_flat(arguments, self.input_lists)))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def outputs_of(self, flat: Sequence[Tensor]) -> list[Any]:
        count = sum(not is_list for is_list in self.output_lists)
        return [*flat[:count], list(flat[count:])] if count < len(self.output_lists) else list(flat)

    def setup(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        values = dict(zip(self.names, (*inputs, *outputs), strict=True))
        tensors = [values[name] for name in self.tensors]
        ctx.saved_lengths = _lengths(tensors, self.tensor_lists)
        ctx.others = {name: values[name] for name in self.others}
        ctx.shapes = [outputs[i].shape for i, _ in self.gradients.values()]
        ctx.set_materialize_grads(False)
        without = self.without_gradients
        ctx.mark_non_differentiable(*_flat([outputs[i] for i in without], [self.output_lists[i] for i in without]))
        ctx.save_for_backward(*_flat(tensors, self.tensor_lists))

    def backward(self, ctx: Any, needed: Sequence[Any], *grads: Tensor | None) -> Sequence[Any]:
        gradients: list[Any] = [[None] * len(each) if isinstance(each, list) else None for each in needed]
        present = [grad for i, _ in self.gradients.values() if (grad := grads[i]) is not None]
        if not present:
            return gradients
        wanted = {i for i, each in enumerate(needed) if (any(each) if isinstance(each, list) else each)}
        named = ctx.others | dict(zip(self.tensors, _nested(ctx.saved_tensors, ctx.saved_lengths), strict=True))
        named |= {name: not wanted.isdisjoint(covered) for name, covered in self.flags.items()}
        for (name, (i, optional)), shape in zip(self.gradients.items(), ctx.shapes, strict=True):
            named[name] = present[0].new_zeros(shape) if grads[i] is None and not optional else grads[i]
        arguments = self.backward_arguments(**named)
        once = torch.is_grad_enabled()  # create_graph, or torch.func
        with torch.no_grad() if once else contextlib.nullcontext():
            outputs = self.backward_op(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if once:
            flat, lengths = _flat(outputs, self.result_lists), _lengths(outputs, self.result_lists)
            flat = _Once.apply(self.backward_op, len(flat), *flat, *present, *ctx.saved_tensors)
            outputs = _nested(flat, lengths)
        results = dict(zip(self.results, outputs, strict=True))
        if self.more.finish is not None:
            results = self.more.finish(arguments, results, {self.inputs[i] for i in wanted})
        for i, name in enumerate(self.inputs):
            if name in results and i in wanted:
                # An op's results may not overlap, so the gradients of a list may come as one tensor.
                one = isinstance(needed[i], list) and isinstance(results[name], Tensor)
                gradients[i] = list(results[name].unbind(0)) if one else results[name]
        return gradients

    def fake(self, arguments: Any) -> Any:
        """Return empty tensors for the backward op's results, shaped like the inputs; of size 0 if not needed."""
        first, others = arguments[0], {} if self.more.shapes is None else self.more.shapes(arguments)
        named = arguments._asdict()
        skipped = {self.inputs[i] for name, covered in self.flags.items() if not named[name] for i in covered}
        tensors: list[Any] = []
        for name, is_list in zip(self.results, self.result_lists, strict=True):
            value = others[name] if name in others else named[name]
            if name in skipped or value is None:
                tensors.append([] if is_list else first.new_empty(0))
            else:
                tensors.append([_like(each, first) for each in value] if is_list else _like(value, first))
        return tuple(tensors) if len(tensors) > 1 else tensors[0]


def _like(value: Any, base: Tensor) -> Tensor:
    """Return a new tensor shaped like the tensor `value`, or of the shape `value` and the dtype of `base`."""
    return value.new_empty(value.shape) if isinstance(value, Tensor) else base.new_empty(value)
