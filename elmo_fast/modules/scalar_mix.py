"""Learned weighted sums of layers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, check_choice, check_counts
from elmo_fast.modules._loading import Module, check_settings, read_uncalled
from elmo_fast.modules.boundaries import mask_without_boundaries
from elmo_fast.op_choices import Backend
from elmo_fast.ops._checks import check_tensor

STATISTICS = ("allennlp", "bilm")


class ScalarMix(Module):
    """gamma * sum_k softmax(w)_k * h_k, optionally with layer normalization of the h_k over the whole batch.

    Args:
        mixture_size: L, number of layers.
        do_layer_norm: whether each layer is normalized by one mean and one variance of all its unmasked elements.
        initial_scalar_parameters: the initial w, L numbers; None: zeros.
        trainable: whether w and gamma are trained.
        statistics: the positions of the mean and the variance: "allennlp": all unmasked ones; "bilm": those without the
            first and last of each row (BOS and EOS), as in bilm-tf, which removes them first.
        backend: one of op_choices.BACKEND_CHOICES; an op without it takes "auto".

    Raises: ElmoFastError.

    Source: Peters et al. 2018, equation 1; AllenNLP's `ScalarMix`.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
        *,
        statistics: str = "allennlp",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_choice("statistics", statistics, STATISTICS)
        check_counts(mixture_size=mixture_size)
        initial = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(initial) != mixture_size:
            raise ElmoFastError(
                f"initial_scalar_parameters must have mixture_size={mixture_size} numbers; got {len(initial)}"
            )
        self.mixture_size = mixture_size
        check_settings("float32", backend)
        self.do_layer_norm, self.statistics, self.backend = bool(do_layer_norm), statistics, backend
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(w)]), requires_grad=trainable) for w in initial
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Return the mix of L tensors of one shape [..., D].

        Args:
            tensors: the layers, lowest first.
            mask: unmasked positions, [...]; used only with do_layer_norm, which needs it.
        """
        return mixes([self], tensors, mask)[0]


def mixes(
    modules: Sequence[ScalarMix], tensors: Sequence[Tensor], mask: Tensor | None, *, dropout: float = 0.0
) -> Tensor:
    """Return the mixes [M, ..., D] of the same layers by M modules of the same settings, in one pass.

    Each mix then has its dropout.
    """
    weights: list[Tensor] = []
    gammas: list[Tensor] = []
    first, counted = modules[0], None
    read_uncalled(*modules)
    for module in modules:
        weights.append(torch.cat(list(module.scalar_parameters)))
        gammas.append(module.gamma)
        if len(tensors) != module.mixture_size:
            raise ElmoFastError(f"tensors must be mixture_size={module.mixture_size} layers; got {len(tensors)}")
    if first.do_layer_norm:
        if mask is None:
            raise ElmoFastError("do_layer_norm=True needs the mask of the unmasked positions; got None")
        check_tensor("ScalarMix", "mask", mask)
        bilm_tf = first.statistics == "bilm"
        counted = nn.functional.pad(mask_without_boundaries(mask), (1, 1)) if bilm_tf else mask
    return ops.scalar_mix(
        list(tensors),
        torch.stack(weights),
        torch.cat(gammas),
        layer_norm=first.do_layer_norm,
        statistics_mask=counted,
        eps=1e-12,
        dropout=dropout,
        backend=ops.backend_for("scalar_mix", first.backend),
    )
