"""Numbers of the stored text, gathered where the text is stored, and what models read and predict for them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elmo_fast.corpus._epoch import Runs
from elmo_fast.corpus.encoding import Corpus
from elmo_fast.ops import gather_runs
from elmo_fast.text import Vocabulary


class StoredText:
    """The numbers of a corpus as tensors: shard by shard on the host, or entirely on a device."""

    def __init__(self, corpus: Corpus, whole_on: torch.device | None) -> None:
        self.device = whole_on or torch.device("cpu")
        self.shards: Sequence[Tensor] = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
        if whole_on is not None:
            whole = torch.empty(int(corpus.offsets[-1]), dtype=torch.int32, device=whole_on)
            for part, shard in zip(whole.split([len(shard) for shard in self.shards]), self.shards, strict=True):
                part.copy_(shard)
            self.shards = [whole]

    def read(self, forward: Runs, backward: Runs, *, pinned: bool = False) -> Tensor:
        """The numbers of the forward runs, in order, then of the backward runs, [n] int32 on the text's device.

        pinned: into pinned memory, for copies to a GPU.
        """
        first, lengths = (torch.from_numpy(np.concatenate(pair)) for pair in zip(forward, backward, strict=True))
        numbers = torch.empty(int(lengths.sum()), dtype=torch.int32, device=self.device, pin_memory=pinned)
        return gather_runs(self.shards, first, lengths, len(forward.first), out=numbers)


class Reader:
    """Converts the numbers of windows to what the models of both directions read and predict.

    read_as, predicted_as: the types of a boundary, forward and backward: forward it is read as <S> and predicted as
    </S>, backward the reverse.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size, self.unknown = len(vocabulary), vocabulary.unk
        self.read_as = vocabulary.bos, vocabulary.eos
        self.predicted_as = vocabulary.eos, vocabulary.bos

    def windows(self, numbers: Tensor, rows: int, steps: int) -> tuple[Tensor, Tensor]:
        """Types and targets of several steps, each [steps, 2, B, T] int64.

        numbers: for each direction and row the numbers of its places and of the next one, [2 · B · (steps · T + 1)].
        """
        types = numbers.sub_(1).view(2, rows, -1)
        # -1 if the number is a boundary, or a word outside the vocabulary: sums are faster than selections.
        boundary, outside = types >> 31, (self.size - 1 - types).bitwise_right_shift_(31)
        targets = torch.addcmul(types, outside, types - self.unknown)
        for way in (0, 1):
            types[way].sub_(boundary[way], alpha=self.read_as[way] + 1)
            targets[way].sub_(boundary[way], alpha=self.predicted_as[way] + 1)
        return _by_step(types[:, :, :-1], steps), _by_step(targets[:, :, 1:], steps)


def _by_step(values: Tensor, steps: int) -> Tensor:
    """[2, B, steps · T] int32 to [steps, 2, B, T] int64."""
    windows = values.unflatten(2, (steps, -1)).permute(2, 0, 1, 3)
    return windows.to(torch.int64, memory_format=torch.contiguous_format)
