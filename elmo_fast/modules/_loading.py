"""What every module does with its settings and with a checkpoint's tensors."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from elmo_fast.checkpoints import ElmoOptions, file_beside, is_model, load_checkpoint, named_folder
from elmo_fast.checkpoints.state import finite_complaints, shape_complaints
from elmo_fast.errors import ElmoFastError, check_choice, refuse
from elmo_fast.op_choices import BACKEND_CHOICES, Backend, InferencePrecision
from elmo_fast.ops._precision import check_precision
from elmo_fast.text import Vocabulary

Weights = Mapping[str, Tensor]
_Module = TypeVar("_Module", bound=nn.Module)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def skip_init(kind: Callable[..., _Module], *sizes: int, **settings: Any) -> _Module:
    """Return a module of torch.nn with uninitialized parameters, on torch's default device."""
    return nn.utils.skip_init(kind, *sizes, device=torch.get_default_device(), **settings)


class Module(nn.Module):
    """A module whose repr shows its settings: what constructors take and it keeps under the same name."""

    def extra_repr(self) -> str:
        """Return name=value of each setting."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, Module)]
        names = [*(name for kind in kinds for name in inspect.signature(kind).parameters), "output_dim"]
        settings = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return ", ".join(f"{n}={v!r}" for n, v in settings.items() if isinstance(v, str | int | float | None))


def explains_missing_arguments(constructor: _Function) -> _Function:
    """Let a constructor with too few arguments raise ElmoFastError: which is missing, and the class's `_advice`."""

    @functools.wraps(constructor)
    def called(self: Any, *values: Any, **named: Any) -> None:
        try:
            inspect.signature(constructor).bind(self, *values, **named)
        except TypeError as error:
            raise ElmoFastError(f"{type(self).__name__}: {error}; {self._advice}") from None
        constructor(self, *values, **named)

    return cast(_Function, called)


# Hooks that compute a layer's weight from other parameters before each forward pass, whatever its input.
_WEIGHT_HOOKS = (WeightNorm, SpectralNorm, BasePruningMethod)


def read_uncalled(*modules: nn.Module | None) -> None:
    """Prepare modules, and all within them, whose parameters the kernels read without calling them.

    Hooks that compute weights (weight_norm, spectral_norm, pruning) run here, as in a call; parametrizations run where
    a weight is read. Raises: ElmoFastError if a module has another hook, or if something has replaced it (a quantizer,
    an adapter): neither would run.
    """
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module is None or type(module) is nn.ModuleDict:  # of parametrizations
            continue
        code = "" if "forward" in vars(module) else type(module).forward.__module__
        if not code.startswith(("torch.nn.modules.", "elmo_fast.")):
            raise ElmoFastError(
                f"a layer of elmo_fast was replaced by {type(module).__module__}.{type(module).__name__}, whose "
                "forward would not run: the kernels read parameters and call no inner module. Adapt a weight with "
                "torch.nn.utils.parametrize, wrap the whole BiLM, Elmo or loss or, in place of a quantizer, give "
                'precision="int8"'
            )
        if module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
            _run_weight_hooks(module)
        waiting.extend(module._modules.values())


def _run_weight_hooks(module: nn.Module) -> None:
    kinds = module._forward_pre_hooks, module._forward_hooks, module._backward_hooks, module._backward_pre_hooks
    for hook in (hook for hooks in kinds for hook in hooks.values()):
        if not isinstance(hook, _WEIGHT_HOOKS):
            raise ElmoFastError(
                f"a hook of the inner {type(module).__name__} would never run ({hook!r:.80}): elmo_fast's kernels read "
                "its parameters without calling it; put the hook on the module that you call, such as a BiLM"
            )
        hook(module, ())


def has_hooks(*modules: nn.Module) -> bool:
    """Return whether a call of any of the modules runs hooks."""
    for each in modules:
        if each._forward_pre_hooks or each._forward_hooks or each._backward_hooks or each._backward_pre_hooks:
            return True
    return False


def check_settings(precision: InferencePrecision, backend: Backend, int8: bool = True) -> None:
    """Raise ElmoFastError unless both are known; whether they can be had is asked when an op runs on its device.

    A module passes one backend to several ops: those that do not have it choose by "auto" (`ops.backend_for`).
    """
    check_precision(precision, int8)
    check_choice("backend", backend, BACKEND_CHOICES)


def read_bilm(
    options_file: str | os.PathLike[str] | ElmoOptions,
    weight_file: str | os.PathLike[str] | Weights | None,
    prefix: str | None = None,
) -> tuple[ElmoOptions, Weights | None]:
    """Return the options and, unless only options are given, the state of a biLM. Raises: CheckpointError."""
    if isinstance(options_file, ElmoOptions) and isinstance(weight_file, Mapping | None):
        if prefix is not None:
            raise ElmoFastError(f"prefix chooses a biLM in the file of an AllenNLP model; got {prefix!r} and no file")
        return options_file, weight_file
    if not (isinstance(options_file, str | os.PathLike | None) and isinstance(weight_file, str | os.PathLike | None)):
        raise ElmoFastError(
            "options_file and weight_file must be two paths, a path and None, or an ElmoOptions and its state or None; "
            f"got {type(options_file).__name__} and {type(weight_file).__name__} (of a dictionary with the content of "
            "options.json, write ElmoOptions.from_dict(...))"
        )
    model = None
    if weight_file is None and options_file is not None:
        model = options_file if os.path.exists(options_file) else named_folder(options_file)
    if model is not None and is_model(model):
        state, options = load_checkpoint(model, prefix=prefix)
    else:
        state, options = load_checkpoint(None, options_file, weight_file, prefix=prefix)
    return options, state


def vocabulary_of(options_file: object, weight_file: object = None) -> Vocabulary | None:
    """Return the vocab.txt beside a model's folder or files, for a model of word ids; None if there is none."""
    place = options_file if weight_file is None else weight_file
    if not isinstance(place, str | os.PathLike):
        return None
    path = file_beside(place if is_model(place) else Path(place).parent)
    return None if path is None else Vocabulary.read(path)


def without_prefix(state: Weights | None, prefix: str) -> Weights | None:
    """Return the entries whose names start with `prefix`, without it."""
    if state is None:
        return None
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load_state(module: Any, state: Weights | None, source: str) -> None:
    """Copy `state` into the parameters of `module`: all of them, of the right shapes and finite, or none at all.

    Without a state they are sampled (`reset_parameters`). Raises: CheckpointError naming every wrong tensor, wanted and
    found.
    """
    if state is None:
        module.reset_parameters()
        return
    own = module.state_dict()
    complaints = shape_complaints(state, {name: tensor.shape for name, tensor in own.items()})
    complaints += [f"{name}: has no place in the model of these options" for name in sorted(state.keys() - own.keys())]
    if complaints := complaints or finite_complaints(state):
        refuse(source, complaints)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])
