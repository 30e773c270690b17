"""ELMo as features of a task: mixes of the layers of a biLM, frozen (live or from a cache) or trained with the task."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo_fast.checkpoints import pretrained_folder
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.modules import BiLM, ScalarMix
from elmo_fast.modules.boundaries import mask_without_boundaries
from elmo_fast.modules.layers import layer_number
from elmo_fast.modules.scalar_mix import mixes
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.tasks.config import L2_KINDS
from elmo_fast.tasks.dropout import dropout


def load_bilm(
    model: str | os.PathLike[str],
    prefix: str | None = None,
    *,
    fine_tune: bool = False,
    precision: InferencePrecision = "float32",
    backend: Backend = "auto",
) -> BiLM:
    """The biLM of a folder, a run, or a name of the hub, every sentence of which starts from the state zero.

    prefix: as in BiLM; fine_tune: whether its weights are trained

    Raises: ElmoFastError, CheckpointError.
    """
    folder = pretrained_folder(model)
    return BiLM(folder, requires_grad=fine_tune, stateful=False, precision=precision, backend=backend, prefix=prefix)


class ElmoFeatures(nn.Module):
    """M mixes of a biLM's layers, each with its own weights, dropped out while training.

        y_m = gamma_m * sum_l softmax(w_m)_l * h_l

    A biLM whose parameters are trained is a submodule. A frozen one is not: it is in no state_dict, and stays in
    evaluation mode; it moves to the mixes' device when it is run.

    Args:
        bilm: as load_bilm gives it; whether it is trained is whether its parameters require gradients. It must not
            carry state.
        mixes: M; one for a task's input, one for its output, or two for both.
        layer: "mix": all layers, w learned; "top" or a number (0 the lowest, -1 the top): that layer alone, gamma
            learned.
        dropout: chance of dropping a number of a mix.
        l2: λ of the penalty.
        l2_kind: see penalty.
        backend: one of op_choices.BACKEND_CHOICES; an op without it takes "auto".

    Raises: ElmoFastError.

    Source: Peters et al. 2018, sections 3.2 to 3.4; bilm-tf's `weight_layers` (gamma is learned there too where only
    the top layer is used).
    """

    def __init__(
        self,
        bilm: BiLM,
        mixes: int = 1,
        *,
        layer: str | int = "mix",
        dropout: float = 0.5,
        l2: float = 0.001,
        l2_kind: str = "paper",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_choice("l2_kind", l2_kind, L2_KINDS)
        if bilm.stateful:
            raise ElmoFastError("bilm must not carry state, for vectors would depend on the order; set stateful=False")
        self.fine_tuned = any(parameter.requires_grad for parameter in bilm.parameters())
        if self.fine_tuned:
            self.trained_bilm = bilm
        else:
            # In a list torch does not see it.
            self._frozen = [bilm.eval()]
        self.dropout, self.l2, self.l2_kind = dropout, l2, l2_kind
        self.layers = _chosen(layer, bilm.num_layers)
        self.learns_weights = layer == "mix"
        for m in range(mixes):
            mix = ScalarMix(len(self.layers), backend=backend)
            for weight in mix.scalar_parameters:
                weight.requires_grad_(self.learns_weights)
            self.add_module(f"scalar_mix_{m}", mix)
        self._mixes = mixes

    @property
    def bilm(self) -> BiLM:
        """The biLM, frozen or trained."""
        return self.trained_bilm if self.fine_tuned else self._frozen[0]

    @property
    def scalar_mixes(self) -> list[ScalarMix]:
        """The M mixes."""
        return [self.get_submodule(f"scalar_mix_{m}") for m in range(self._mixes)]  # type: ignore[misc]

    def get_output_dim(self) -> int:
        """2D, the width of a mix."""
        return self.bilm.get_output_dim()

    def bilm_parameters(self) -> list[nn.Parameter]:
        """The biLM's parameters where they are trained, for a learning rate of their own; else none."""
        return list(self.bilm.parameters()) if self.fine_tuned else []

    def forward(self, sentences: Sequence[Sequence[str]], layers: Tensor | None = None) -> Tensor:
        """The mixes of a batch of tokenised sentences, [M, B, T, 2D], 0 at padding.

        Args:
            sentences: B lists of words.
            layers: from LayerCache.batch, of these sentences: [L+1, B, T, 2D], or only those that `self.layers` numbers
                ([K, B, T, 2D]); None: the biLM is run.

        Raises: ElmoFastError: layers of another number or width, or for a biLM that is trained.
        """
        mixed = self._of_sentences(sentences) if layers is None else self._of_layers(layers)
        return dropout(mixed, self.dropout, self.training)

    def _of_layers(self, layers: Tensor) -> Tensor:
        known, width = self.bilm.num_layers, self.get_output_dim()
        if self.fine_tuned or layers.shape[0] not in (len(self.layers), known) or layers.shape[-1] != width:
            what = "None, since the biLM is trained" if self.fine_tuned else f"{known} layers of width {width}"
            raise ElmoFastError(f"layers must be {what}; got {layers.shape[0]} of width {layers.shape[-1]}")
        layers = layers.to(self.scalar_mixes[0].gamma.device, non_blocking=True)
        picked = layers.unbind(0)
        if layers.shape[0] != len(self.layers):
            picked = tuple(picked[number] for number in self.layers)
        return mixes(self.scalar_mixes, picked, None)

    def _of_sentences(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        device = self.scalar_mixes[0].gamma.device
        bilm = self.bilm
        if next(bilm.parameters()).device != device:
            bilm.to(device)
        ids = bilm.batch_to_ids(sentences).to(device)
        with torch.set_grad_enabled(self.fine_tuned and torch.is_grad_enabled()):
            output = bilm(ids)
        mixed = mixes(self.scalar_mixes, [output["activations"][number] for number in self.layers], None)
        inner = mask_without_boundaries(output["mask"])
        return torch.where(inner[..., None], mixed[:, :, 1:-1], 0)

    def penalty(self) -> Tensor:
        """What is added to the loss, []: λ Σ_m Σ_l w_ml², of the weights before the softmax; 0 for a single layer.

        It draws the mixes towards the average of the layers. "paper": λ‖w‖², as section 3.4 has it; "bilm-tf": λ Σ W²,
        as weight_layers(l2_coef=λ) has it. Both are this sum: bilm-tf takes the softmax of W + 1/(L+1), but that shift
        changes no softmax, and it is W without the shift that is squared. gamma is not penalised in either.
        """
        weights = [weight for mix in self.scalar_mixes for weight in mix.scalar_parameters]
        if not self.learns_weights or not self.l2:
            return weights[0].new_zeros(())
        return self.l2 * torch.cat(weights).square().sum()

    @torch.no_grad()
    def weights(self) -> list[list[float]]:
        """softmax(w) of each mix, M lists, in the order of `self.layers`."""
        return [torch.cat(list(mix.scalar_parameters)).softmax(0).tolist() for mix in self.scalar_mixes]

    @torch.no_grad()
    def gammas(self) -> list[float]:
        """gamma of each mix."""
        return [float(mix.gamma.detach()) for mix in self.scalar_mixes]


def _chosen(layer: str | int, known: int) -> list[int]:
    if layer == "mix":
        return list(range(known))
    counted_down = isinstance(layer, int) and -known <= layer < 0
    return [layer_number(layer + known if counted_down else layer, known, also='"mix", ')]  # type: ignore[operator]
