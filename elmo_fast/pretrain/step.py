"""One step of training: both losses, their gradient, the clip, the update."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import backend_for, log_uniform_sample, sampled_softmax
from elmo_fast.pretrain.adagrad import clip_and_step
from elmo_fast.pretrain.language_model import LanguageModel, State
from elmo_fast.pretrain.tensors import Side, TensorBatch


class StepResult(NamedTuple):
    """forward, backward: mean sampled loss per word, nats; gradient_norm: before the clip; state: after the step.

    On a GPU the losses and gradient_norm are [] tensors: to read one is to wait for the step.
    """

    forward: float | Tensor
    backward: float | Tensor
    gradient_norm: float | Tensor
    state: State


def sampled_loss(
    model: LanguageModel,
    hidden: Tensor,
    targets: Tensor,
    *,
    num_samples: int,
    seed: int,
    draw: int,
    sparse: bool = True,
) -> Tensor:
    """Mean loss of one direction against one sample of words that its whole batch shares.

    hidden: [N, D]; targets: [N] int64; draw: which sample of the seed's sequence, a new one for each direction and
    step; sparse: the softmax table's gradient as the rows used only.
    """
    samples, tries = log_uniform_sample(
        num_samples,
        len(model.softmax_bias),
        seed=seed,
        offset=draw,
        device=hidden.device,
        backend=backend_for("log_uniform_sample", model.backend),
    )
    losses = sampled_softmax(
        hidden,
        targets,
        model.softmax_weight,
        model.softmax_bias,
        samples,
        tries,
        sparse=sparse,
        precision=model.precision,
        backend=backend_for("sampled_softmax", model.backend),
    )
    return losses.mean()


def train_step(
    model: LanguageModel,
    optimiser: torch.optim.Optimizer,
    batch: TensorBatch,
    state: State | None,
    *,
    num_samples: int,
    clip_norm: float,
    seed: int,
    step: int,
    sparse: bool = True,
) -> StepResult:
    """Reads one window of every row, updates the weights once and hands the LSTM state on.

        loss = (mean(forward) + mean(backward)) / 2        over B·T words each
        gradient of T · loss, clipped at a global norm, then the optimiser's step

    batch: both directions' windows of T words; state: after the step before, None for zeros; num_samples: words drawn
    per direction; clip_norm: largest norm of all gradients together; seed, step: which samples are drawn;
    sparse: update the rows of the softmax table that were used, not the table (the same numbers).

    Source: bilm-tf, bilm/training.py.
    """
    model.train()
    optimiser.zero_grad(set_to_none=True)
    forward, backward, state = model(batch.forward.ids, batch.backward.ids, state)
    sides: list[tuple[Tensor, Side]] = [(forward, batch.forward), (backward, batch.backward)]
    losses = [
        sampled_loss(
            model, hidden, side.targets, num_samples=num_samples, seed=seed, draw=2 * step + way, sparse=sparse
        )
        for way, (hidden, side) in enumerate(sides)
    ]
    unroll_steps = batch.forward.ids.shape[1]
    (0.5 * (losses[0] + losses[1]) * unroll_steps).backward()
    norm = clip_and_step(optimiser, model.parameters(), clip_norm)
    found = [loss.detach() if loss.is_cuda else loss.item() for loss in losses]
    return StepResult(found[0], found[1], norm, state)
