"""Windows of type ids to what the network takes: characters to read and words to predict."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.pretrain.corpus import Corpus
from elmo_fast.pretrain.streams import Batch, Window
from elmo_fast.text import CharacterTable


class Side(NamedTuple):
    """One direction's tensors: ids, characters [B, T, C] int64; targets, words to predict [B·T] int64."""

    ids: Tensor
    targets: Tensor


class TensorBatch(NamedTuple):
    """Both directions' tensors of one step."""

    forward: Side
    backward: Side


class Encoder:
    """Turns windows into tensors on one device.

    corpus: whose types the windows name; max_characters: slots C per word; device: where the tensors go.
    """

    def __init__(self, corpus: Corpus, max_characters: int, device: torch.device | str = "cpu") -> None:
        self.characters = CharacterTable(corpus.types, max_characters)
        self.device = device

    def side(self, window: Window) -> Side:
        """The tensors of one direction's window."""
        ids = torch.from_numpy(self.characters.ids(window.inputs))
        targets = torch.from_numpy(window.targets).reshape(-1).long()
        return Side(ids.to(self.device), targets.to(self.device))

    def batch(self, batch: Batch) -> TensorBatch:
        """The tensors of both directions."""
        return TensorBatch(self.side(batch.forward), self.side(batch.backward))
