"""What all measurements of `elmo-fast tune` share: the card, sizes and calls; the fastest of the values of a choice."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from elmo_fast.modules import BiLM
from elmo_fast.op_choices import Precision
from elmo_fast.ops import LSTMWeights, _tuned
from elmo_fast.ops._dispatch import why_refused
from elmo_fast.ops._tolerances import why_worse
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.tuning.timed import OURS, Judge, Timed, fastest

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Card(NamedTuple):
    """What all measurements share. batch sentences of `length` words; compiled: makes a compiled function of one."""

    device: torch.device
    precision: Precision
    model: ModelConfig
    batch: int
    length: int
    compiled: Compile
    timed: Timed

    @property
    def dtype(self) -> torch.dtype:
        """Of the operands of products."""
        dtype: torch.dtype = getattr(torch, self.precision)
        return dtype

    def refuses(self, what: str, op: str, backend: str = "triton") -> bool:
        """Whether a backend of the op cannot be measured: it is checked here if it never was; skips `what` then."""
        why = why_refused(op, backend, self.device, torch.float32, self.precision)
        if why is not None:
            self.timed.skipped.append(f"{what}: {why}")
        return why is not None

    def uniform(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Numbers between -scale and scale."""
        return torch.empty(*shape, device=self.device).uniform_(-scale, scale)

    def lstm(self, batch: int) -> tuple[Tensor, list[LSTMWeights]]:
        """The input [B, T, D] and the weights of a layer of two directions."""
        cells, size = self.model.dim, self.model.projection_dim
        shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
        weights = [LSTMWeights(*(self.uniform(*shape, scale=cells**-0.5) for shape in shapes)) for _ in range(2)]
        return self.uniform(batch, self.length, size), weights

    def bilm(self) -> tuple[BiLM, Tensor]:
        """A model with new weights, and the character ids [B, T, C] of words as frequent as in running text."""
        options = options_of(self.model, 1000)
        made = BiLM(options, stateful=False, cache_size=0, precision=self.precision).to(self.device).eval()
        rank = (1000 ** torch.rand(self.batch, self.length)).long().clamp(0, 999)
        slots = self.model.max_characters_per_token
        spelled = torch.randint(97, 123, (1000, slots))
        spelled[:, 0], spelled[:, min(7, slots - 2)], spelled[:, min(8, slots - 1) :] = 259, 260, 261
        return made, spelled[rank].to(self.device)

    def fastest(
        self,
        variant: str,
        name: str,
        values: Mapping[int, str],
        call: Callable[[], object],
        default: int,
        why_wrong: Judge = lambda result: None,
    ) -> dict[str, int]:
        """The fastest of a choice's values, whose sides have these names; the default one where none wins clearly."""
        by_side = {f"{OURS}, {side}": value for value, side in values.items()}
        calls = {side: choosing(name, value, call) for side, value in by_side.items()}
        times = self.timed.medians(variant, calls, why_wrong)
        return {name: fastest({by_side[side]: time for side, time in times.items()}, default)} if times else {}


def choosing(name: str, value: int, call: Callable[[], object]) -> Callable[[], object]:
    """The call with that choice."""

    def run() -> object:
        with _tuned.forced({name: value}):
            return call()

    return run


def held_to_definition(op: Callable[..., Any], given: tuple[Any, ...], precision: str) -> Judge:
    """What is wrong with a result of `op(*given)`, by the tolerances: plain torch in float64 is the truth."""
    double = tree_map(
        lambda each: each.double() if isinstance(each, Tensor) and each.is_floating_point() else each, given
    )
    truth = tree_leaves(op(*double, backend="reference"))
    plain = tree_leaves(op(*given, precision=precision, backend="reference"))

    def why_wrong(result: Any) -> str | None:
        results = enumerate(zip(tree_leaves(result), plain, truth, strict=True))
        return next(filter(None, (why_worse(f"result {i}", *each, precision) for i, each in results)), None)

    return why_wrong
