"""What the losses over a vocabulary have in common: a table of rows and biases, training losses, exact losses."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings
from elmo_fast.op_choices import Backend, Precision

CHUNK_BYTES = 32 * 2**20


class VocabularyLoss(nn.Module):
    """A loss over V words; its table is drawn from N(0, 1/D), its bias starts at `initial_bias`.

    Args:
        rows: of the table.
        embedding_dim: D.
        sparse: softmax_w and softmax_b become Embeddings whose gradients are sparse rows, coalesced on the CPU.
        precision, backend: as the ops'.

    Attributes:
        softmax_w: [rows, D], softmax_b: [rows].
        sparse: whether gradients of the table are sparse rows; may be set, the full softmax uses all rows anyway.
        name: in configurations and checkpoints; ops_used: names of the ops that it calls; draws: whether training
            draws words; wants_counts: whether it needs the words' counts; perplexity: what metrics.jsonl calls exp of
            the training loss, None where that is no perplexity; explanation: how exact losses are computed, where
            they are not a plain softmax's.
    """

    name: ClassVar[str]
    ops_used: ClassVar[tuple[str, ...]]
    draws: ClassVar[bool] = False
    wants_counts: ClassVar[bool] = False
    perplexity: ClassVar[str | None] = "training_perplexity"
    explanation: ClassVar[str] = ""

    softmax_w: nn.Embedding | nn.Parameter
    softmax_b: nn.Embedding | nn.Parameter
    num_samples: int

    def __init__(self, rows: int, embedding_dim: int, sparse: bool, precision: Precision, backend: Backend) -> None:
        super().__init__()
        check_settings(precision, backend, *self.ops_used, int8=False)
        self.sparse, self.precision, self.backend = sparse, precision, backend
        self._made: tuple[Tensor, int, Any] | None = None
        table, bias = torch.randn(rows, embedding_dim) / embedding_dim**0.5, torch.zeros(rows)
        if sparse:
            self.softmax_w = nn.Embedding.from_pretrained(table, freeze=False, sparse=True)
            self.softmax_b = nn.Embedding.from_pretrained(bias[:, None], freeze=False, sparse=True)
        else:
            self.softmax_w, self.softmax_b = nn.Parameter(table), nn.Parameter(bias)

    @property
    def initial_bias(self) -> float:
        """The value of each bias of a new table."""
        return 0.0

    @classmethod
    def table_rows(cls, words: int) -> int:
        """Rows of the table for a vocabulary of V words."""
        return words

    @classmethod
    def max_rows_used(cls, words: int, samples: int, positions: int) -> int:
        """The most rows with a gradient in a step of `positions` positions of each direction."""
        return min(words, 2 * (samples * cls.draws + positions))

    def gradient_rows(self, positions: int) -> int:
        """Rows of a sparse gradient of `positions` positions of one direction, repeated ones included."""
        return positions + (self.num_samples if self.draws else 0)

    @classmethod
    def products(cls, words: int, samples: int) -> float:
        """Inner products of D per position, direction and forward pass while training, about."""
        return samples + 1

    def forward(self, embeddings: Tensor, targets: Tensor, target_token_embedding: Tensor | None = None) -> Tensor:
        """The sum over the batch of the losses, in nats.

        Args:
            embeddings: [N, D].
            targets: the words wanted, [N], whole numbers from 0 to V-1.
            target_token_embedding: not used (AllenNLP's name for tied embeddings, which it never had).
        """
        if embeddings.shape[0] == 0:
            return embeddings.new_zeros(())
        targets = targets.long()
        if self.draws and not self.training:
            return self._evaluate(embeddings, targets)
        drawn = self._draw_now(embeddings.device) if self.draws else None
        return self.training_losses(embeddings, targets, drawn).sum()

    def draw(self, seed: int, offset: int, device: torch.device) -> Any:
        """The words that one direction draws for one step: a function of seed and offset, so equal in all processes."""
        return None

    def training_losses(self, hidden: Tensor, targets: Tensor, drawn: Any) -> Tensor:
        """The loss of each position while training, [N], nats.

        Args:
            hidden: [N, D].
            targets: [N] int64.
            drawn: as `draw` returns it.
        """
        raise NotImplementedError

    def exact_losses(self, hidden: Tensor, targets: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
        """-ln p of each target, [N], under probabilities that sum to 1 over the vocabulary; logits in chunks."""
        return self._full_losses(hidden, targets, self.table()[1], chunk_bytes)

    def table(self) -> tuple[Tensor, Tensor]:
        """The table [rows, D] and its bias [rows]."""
        w = self.softmax_w.weight if isinstance(self.softmax_w, nn.Embedding) else self.softmax_w
        b = self.softmax_b.weight.squeeze(1) if isinstance(self.softmax_b, nn.Embedding) else self.softmax_b
        return w, b

    def _full_losses(self, hidden: Tensor, targets: Tensor, bias: Tensor, chunk_bytes: int) -> Tensor:
        return ops.full_softmax(
            hidden, targets, self.table()[0], bias, chunk_bytes=chunk_bytes, **self._settings("full_softmax")
        )

    def _evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.exact_losses(hidden, targets).sum()

    def _draw_now(self, device: torch.device) -> Any:
        """As `draw`, seeded by torch's generator."""
        seed, offset = torch.randint(2**62, (2,)).tolist()
        return self.draw(seed, offset, device)

    def _settings(self, op: str) -> dict[str, Any]:
        return {"precision": self.precision, "backend": ops.backend_for(op, self.backend)}

    def _cache(self, counts: Tensor, make: Callable[[Tensor], Any]) -> Any:
        """What `make` makes of the counts on the CPU; made again when they change. No values are compared: on a GPU
        that would wait for the device."""
        version = 0 if counts.is_inference() else counts._version
        if self._made is None or self._made[0] is not counts or self._made[1] != version:
            self._made = counts, version, make(counts.cpu())
        return self._made[2]


def copy_counts(counts: Tensor, num_words: int) -> Tensor:
    """A copy of the counts [V] as int64 on the CPU. Raises ElmoFastError unless there are V of them, 0 or more."""
    held = (counts if isinstance(counts, Tensor) else torch.as_tensor(counts)).detach()
    held = held.to("cpu", torch.int64, copy=True)
    if held.shape != (num_words,) or not held.numel() or int(held.min()) < 0:
        raise ElmoFastError(
            f"counts must say how often each of the num_words={num_words} words occurs, [V], 0 or more; got shape "
            f"{tuple(held.shape)}" + (f" from {int(held.min())} up" if held.numel() else "")
        )
    return held
