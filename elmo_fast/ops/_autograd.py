"""Fakes and autograd of the registered ops, derived from the names in their schemas.

In the schema of `<op>_backward`, `grad` is the gradient of the first output of `<op>` and `d_<output>` the gradient of
any other output; `need_<result>` requests that result and those after it, up to the next one that has a flag; every
other argument is a saved input or output of `<op>`. A result is named after the input whose gradient it is and has that
input's shape; as an op's results may not overlap, the gradients of a list may come as one tensor, [list, ...].

Where gradients are needed an op runs in an autograd.Function: applied in Python, where torch.func sees it, and by
torch's dispatcher where an op itself is called: from torch.ops, and by torch.compile, which takes an op as it is.
"""

import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._schemas import LIBRARY, NAMESPACE, SCHEMAS, arguments_of, overload

# Where Triton is missing, torch's module warns as it is imported, of kernels that nobody has there.
_log = logging.getLogger("torch.utils.flop_counter")
_log.disabled = True
from torch.utils.flop_counter import register_flop_formula  # noqa: E402

_log.disabled = False


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


def register_op(
    name: str,
    fake: Callable[[Any], Any],
    saved: Callable[[Any], list[Tensor]] | None = None,
    products: Callable[[Any], int] | None = None,
    shapes: Callable[[Any], Mapping[str, Any]] = lambda arguments: {},
    finish: Callable[[Any, dict[str, Any], Set[str]], dict[str, Any]] = lambda arguments, results, wanted: results,
) -> None:
    """Describe an op to torch: the shapes and dtypes of its results, and its gradients, on every device.

    fake(arguments): returns the results, given the arguments as a tuple with the schema's names. saved(arguments):
    returns what C++ saves for the backward pass, where the schema has `saved` as its last result. products(arguments of
    the op or, of the same names, of its backward op): multiplications in the op's matrix products, one for each weight
    that a row meets, for torch.utils.flop_counter. shapes(arguments of the backward op): returns shape or tensor of
    each result that is unlike the argument of its name. finish(these arguments, the results by name, inputs that need a
    gradient): returns the gradients by input.
    """
    if products is not None:
        for op in (name, f"{name}_backward"):
            _register_flops(op, products)
    for namespace, library in {NAMESPACE: LIBRARY, _triton.NAMESPACE: _triton.LIBRARY}.items():

        def with_saved(arguments: Any, namespace: str = namespace) -> Any:
            """Append what the backend of the arguments' device saves."""
            outputs = fake(arguments)
            if saved is None:
                return outputs
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            if not getattr(arguments, "save", True):
                return *outputs, []
            native = namespace == NAMESPACE and outputs[0].device.type != "cuda"
            return *outputs, (saved if native else _triton.saved_by[name])(arguments)

        _register_fake(library, name, with_saved)
        if any(schema.startswith(f"{name}_backward(") for schema in SCHEMAS):
            formula = Formula(namespace, name, shapes, finish)
            _register_fake(library, f"{name}_backward", formula.fake)
            FORMULAS[f"{namespace}::{name}"] = formula
            library.impl(name, formula, "Autograd")


def _register_flops(op: str, products: Callable[[Any], int]) -> None:
    """Register two operations for each product; a backward pass has them for each kind of gradient that is needed."""

    def formula(*values: Any, out_val: Any = None, **named: Any) -> int:
        a = arguments_of(op)(*values, **named)
        needed = [value for name, value in a._asdict().items() if name.startswith("need_") and name != "need_h0"]
        return 2 * products(a) * (sum(needed) if needed else 1 + op.endswith("_backward"))

    register_flop_formula(getattr(getattr(torch.ops, NAMESPACE), op), get_raw=True)(formula)


def refuse_vmap(*args: Any, **kwargs: Any) -> Any:
    raise ElmoFastError(
        "an op of elmo_fast has no batching rule for torch.func.vmap: the kernels take batches as they are; give the "
        'op the whole batch, or use backend="reference" without sparse gradients'
    )


def _register_fake(library: torch.library.Library, name: str, fake: Callable[[Any], Any]) -> None:
    """Register the shapes and dtypes of an op's results; torch.func.vmap over it is an error."""
    arguments = arguments_of(name)
    torch.library.register_fake(f"{library.ns}::{name}", lambda *args, **kwargs: fake(arguments(*args, **kwargs)))
    for key in ("FuncTorchBatched", "Batched"):  # the second one is torch.autograd's own, for is_grads_batched
        library.impl(name, refuse_vmap, key)


class _Once(torch.autograd.Function):
    """Returns the first `count` of some tensors, the results of a backward op, and refuses to differentiate them."""

    vmap = staticmethod(refuse_vmap)

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

    vmap = staticmethod(refuse_vmap)

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        formula, lengths, *flat = arguments
        with torch._C._AutoDispatchBelowAutograd():
            outputs = formula.op(*_nested(flat, lengths))
        return tuple(_flat(outputs if isinstance(outputs, tuple) else (outputs,))[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
        ctx.formula, ctx.lengths = formula, _ = inputs[:2]
        values = dict(zip(formula.names, (*_nested(inputs[2:], ctx.lengths), *formula.outputs_of(output)), strict=True))
        flat, ctx.saved_lengths = _flat([values[name] for name in formula.saved])
        ctx.others = [None if isinstance(each, Tensor) else each for each in flat]
        ctx.save_for_backward(*[each if isinstance(each, Tensor) else None for each in flat])
        ctx.outputs = [each.shape for each in output]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[each for i, each in enumerate(output) if i not in formula.with_gradients])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        gradients = ctx.formula.backward(ctx, _nested(ctx.needs_input_grad[2:], ctx.lengths), *grads)
        return None, None, *_flat(gradients)[0]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise ElmoFastError(
            f"{ctx.formula.op} has no derivative in forward mode (torch.func.jvp, jacfwd, hessian or linearize, "
            "torch.autograd.forward_ad): the kernels have reverse mode only; use torch.func.vjp or grad, or "
            'backend="reference"'
        )


_Call.forward.__signature__ = inspect.signature(_Call.forward)  # type: ignore[attr-defined]  # `apply` asks at each call


def _flat(values: Sequence[Any]) -> tuple[list[Any], list[int | None]]:
    """Return the values with lists dissolved, and the length of each that is a list."""
    flat: list[Any] = []
    lengths: list[int | None] = []
    for value in values:
        if isinstance(value, list):
            flat += value
            lengths.append(len(value))
        else:
            flat.append(value)
            lengths.append(None)
    return flat, lengths


def _nested(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    """Return what `_flat` has dissolved."""
    values: list[Any] = []
    at = 0
    for length in lengths:
        values.append(flat[at] if length is None else list(flat[at : at + length]))
        at += 1 if length is None else length
    return values


class Formula:
    """An op with its autograd: what it saves, the arguments of its backward op, and the inputs that get its results."""

    def __init__(self, namespace: str, op: str, shapes: Callable[..., Any], finish: Callable[..., Any]) -> None:
        self.op, self.backward_op = overload(op, namespace), overload(f"{op}_backward", namespace)
        self.backward_arguments, self.shapes, self.finish = arguments_of(f"{op}_backward"), shapes, finish
        inputs, outputs = self.op._schema.arguments, [each.name for each in self.op._schema.returns]
        self.defaults = [argument.default_value for argument in inputs]
        self.inputs = [each.name for each in inputs]
        self.names = [*self.inputs, *outputs]
        self.save = self.inputs.index("save") if "save" in self.inputs else None
        self.tensors = sum(not isinstance(each.type, torch.ListType) for each in self.op._schema.returns)
        results = self.backward_op._schema.returns
        self.results = {each.name: isinstance(each.type, torch.ListType) for each in results}
        # Where each argument of the backward op comes from: an input or output, a gradient or a flag.
        self.saved: list[str] = []
        self.gradients: dict[str, tuple[int, bool]] = {}  # the output, and whether it may be None
        self.flags: dict[str, list[str]] = {}  # the results that it requests
        for argument in self.backward_op._schema.arguments:
            name = argument.name
            if name in self.names:
                self.saved.append(name)
            elif name.startswith("need_"):
                self.flags[name] = []
            else:
                output = 0 if name == "grad" else outputs.index(name.removeprefix("d_"))
                self.gradients[name] = output, isinstance(argument.type, torch.OptionalType)
        self.with_gradients = {output for output, _ in self.gradients.values()}
        requested: list[str] = []
        for name in self.results:
            requested = self.flags.get(f"need_{name}", requested)
            requested.append(name)

    def __call__(self, *arguments: Any) -> Any:
        """Call the op, with gradients if any are needed. torch's dispatcher calls this too, where the op is called."""
        if self.save is not None:
            needed = arguments[self.save]
        else:
            needed = requires_grad(*[each for each in _flat(arguments)[0] if isinstance(each, Tensor)])
        if not needed:
            with torch._C._AutoDispatchBelowAutograd():
                return self.op(*arguments)
        arguments = (*arguments, *self.defaults[len(arguments) :])  # without those that equal their defaults
        flat, lengths = _flat(arguments)
        outputs = _Call.apply(self, lengths, *flat)
        return outputs[0] if len(self.names) == len(self.inputs) + 1 else self.outputs_of(outputs)

    def outputs_of(self, flat: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the op's results: tensors, then perhaps a list, what it saved."""
        saved = [list(flat[self.tensors :])] if len(self.inputs) + self.tensors < len(self.names) else []
        return (*flat[: self.tensors], *saved)

    def backward(self, ctx: Any, needed: Sequence[Any], *grads: Tensor | None) -> Sequence[Any]:
        gradients: list[Any] = [[None] * len(each) if isinstance(each, list) else None for each in needed]
        present = [grad for i, _ in self.gradients.values() if (grad := grads[i]) is not None]
        if not present:
            return gradients
        flags = zip(self.inputs, needed, strict=True)
        wanted = {name for name, need in flags if (any(need) if isinstance(need, list) else need)}
        saved = [other if t is None else t for t, other in zip(ctx.saved_tensors, ctx.others, strict=True)]
        named = dict(zip(self.saved, _nested(saved, ctx.saved_lengths), strict=True))
        named |= {name: not wanted.isdisjoint(covered) for name, covered in self.flags.items()}
        for name, (i, optional) in self.gradients.items():
            named[name] = present[0].new_zeros(ctx.outputs[i]) if grads[i] is None and not optional else grads[i]
        arguments = self.backward_arguments(**named)
        once = torch.is_grad_enabled()  # create_graph, or torch.func
        with torch.no_grad() if once else contextlib.nullcontext():
            outputs = self.backward_op(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if once:
            flat, lengths = _flat(outputs)
            flat = _Once.apply(self.backward_op, len(flat), *flat, *present, *ctx.saved_tensors)
            outputs = _nested(flat, lengths)
        results = dict(zip(self.results, outputs, strict=True))
        results = self.finish(arguments, results, wanted)
        for i, name in enumerate(self.inputs):
            if name in results and name in wanted:
                one = isinstance(needed[i], list) and isinstance(results[name], Tensor)
                gradients[i] = list(results[name].unbind(0)) if one else results[name]
        return gradients

    def fake(self, arguments: Any) -> Any:
        """Return empty tensors for the backward op's results, shaped like the inputs; of size 0 if not needed."""
        named = arguments._asdict() | self.shapes(arguments)
        skipped = {each for name, requested in self.flags.items() if not named[name] for each in requested}
        tensors: list[Any] = []
        for name, is_list in self.results.items():
            value = None if name in skipped else named[name]
            if is_list:
                tensors.append([each.new_empty(each.shape) for each in value or ()])
            elif isinstance(value, Tensor):
                tensors.append(value.new_empty(value.shape))
            elif isinstance(value, list) and value:
                tensors.append(value[0].new_empty(len(value), *value[0].shape))
            else:
                tensors.append(arguments[0].new_empty(value or 0))
        return tuple(tensors) if len(tensors) > 1 else tensors[0]
