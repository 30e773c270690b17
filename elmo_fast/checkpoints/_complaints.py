"""What is wrong with a file, in one sentence: all problems with its tensors, or why it cannot be written."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError

Shape = Sequence[int | None]
_SHOWN = 6


def refuse(source: object, complaints: Sequence[str]) -> NoReturn:
    """Raises the CheckpointError "source: complaint; complaint; ... and n more"."""
    rest = f"; and {len(complaints) - _SHOWN} more" if len(complaints) > _SHOWN else ""
    raise CheckpointError(f"{source}: {'; '.join(complaints[:_SHOWN])}{rest}")


def shape_text(shape: Shape) -> str:
    """[4, 8], with * for any size."""
    return f"[{', '.join('*' if size is None else str(size) for size in shape)}]"


def shape_complaints(found: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> list[str]:
    """One complaint per wanted tensor that is missing or has another shape."""
    complaints = []
    for name, shape in wanted.items():
        if name not in found:
            complaints.append(f"{name}: wanted shape {shape_text(shape)}, found no such tensor")
        elif not fits(found[name], shape):
            complaints.append(f"{name}: wanted shape {shape_text(shape)}, found {shape_text(found[name])}")
    return complaints


def fits(found: Shape, wanted: Shape) -> bool:
    """Whether the shapes agree; None in `wanted` means any size above 0."""
    if len(found) != len(wanted):
        return False
    return all(f == w if w is not None else bool(f) for f, w in zip(found, wanted, strict=True))


def exact_float32(name: str, values: np.ndarray | Tensor, source: object) -> Tensor:
    """A copy as a contiguous float32 tensor; warns if float64 values had to be rounded."""
    if isinstance(values, np.ndarray):
        wide = torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False))
    else:
        wide = values.detach().cpu()
    result = wide.to(torch.float32, copy=True).contiguous()
    if wide.dtype == torch.float64 and not torch.equal(result.double(), wide):
        warnings.warn(f"{source}: {name}: rounded from float64 to float32", stacklevel=2)
    return result


def finite_complaints(tensors: Mapping[str, Tensor]) -> list[str]:
    """One complaint per tensor that contains a NaN or an infinity."""
    complaints = []
    for name, tensor in tensors.items():
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():  # one pass; NaN passes through
            bad = tensor.numel() - int(tensor.isfinite().sum())
            complaints.append(f"{name}: wanted finite numbers, found {bad} NaN or infinite of {tensor.numel()}")
    return complaints


def exact_tensors(
    source: object, names: Iterable[str], read: Callable[[str], np.ndarray | Tensor]
) -> dict[str, Tensor]:
    """The tensors of these names as exact_float32; a CheckpointError that names `source` if one is not finite."""
    found = {name: exact_float32(name, read(name), source) for name in names}
    if complaints := finite_complaints(found):
        refuse(source, complaints)
    return found


@contextlib.contextmanager
def failures_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Creates the folder of `path`; turns an OSError of the block into a CheckpointError that names `path`."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error})") from error
