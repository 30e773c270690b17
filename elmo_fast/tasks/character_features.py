"""Words as their characters: a small convolutional network that is trained with the task."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings, unset
from elmo_fast.op_choices import Backend, Precision
from elmo_fast.text import MAX_CHARACTERS, CharacterTable

_IDS = 262  # of CharacterTable: bytes, markers and padding, less one, as ELMo's


class CharacterFeatures(nn.Module):
    """A word's vector [W] from its bytes: embedding, convolutions, maximum over the word, activation.

    Each distinct word of a batch is encoded once.

    Args:
        embedding_dim: E, numbers per character.
        filters: (width, number) of each group of convolutions; W is the sum of the numbers.
        max_characters: slots per word; a word keeps at most this many bytes minus two.
        activation: "relu" | "tanh".
        precision, backend: as in elmo_fast.ops.char_cnn.

    Raises: ElmoFastError.

    Source: Ma and Hovy 2016, section 2.1 (30 filters of width 3 over 30 numbers).
    """

    def __init__(
        self,
        embedding_dim: int = 30,
        filters: Sequence[tuple[int, int]] = ((3, 30),),
        *,
        max_characters: int = MAX_CHARACTERS,
        activation: str = "relu",
        precision: Precision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_settings(precision, backend, "char_cnn")
        if not filters or any(not 1 <= width <= max_characters or number < 1 for width, number in filters):
            raise ElmoFastError(
                f"filters must be pairs (width from 1 to {max_characters}, number from 1); got {filters!r}"
            )
        self.filters, self.max_characters = [tuple(pair) for pair in filters], max_characters
        self.activation, self.precision, self.backend = activation, precision, backend
        self.embedding = nn.Parameter(torch.empty(_IDS, embedding_dim))
        self.convolutions = nn.ModuleList(
            unset(nn.Conv1d, embedding_dim, number, width) for width, number in self.filters
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initializes the parameters: characters U(±√(3/E)), filters glorot-uniform, biases 0."""
        bound = math.sqrt(3 / self.embedding.shape[1])
        self.embedding.uniform_(-bound, bound)
        for convolution in self.convolutions:
            nn.init.xavier_uniform_(convolution.weight)  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]

    def get_output_dim(self) -> int:
        """W."""
        return sum(number for _, number in self.filters)

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The vectors of a batch of tokenized sentences, [B, T, W], 0 at padding."""
        rows: dict[str, int] = {}
        places = [[rows.setdefault(word, len(rows) + 1) for word in words] for words in sentences]
        longest = max(map(len, places), default=0)
        at = torch.tensor([row + [0] * (longest - len(row)) for row in places], dtype=torch.int64)
        vectors = self._encode(list(rows))
        with_padding = torch.cat([vectors.new_zeros(1, vectors.shape[1]), vectors])
        flat = with_padding.index_select(0, at.reshape(-1).to(vectors.device))
        return flat.reshape(len(places), longest, vectors.shape[1])

    def _encode(self, words: list[str]) -> Tensor:
        # Beyond the longest word and one window of padding all windows are alike: their maximum is the same.
        widest = max(width for width, _ in self.filters)
        slots = min(self.max_characters, max((len(word.encode("utf-8", "ignore")) for word in words), default=1) + 2)
        slots = min(self.max_characters, slots + widest)
        ids = torch.from_numpy(CharacterTable(words, slots).ids()).to(self.embedding.device)
        return ops.char_cnn(
            ids,
            self.embedding,
            [convolution.weight for convolution in self.convolutions],  # type: ignore[misc]
            [convolution.bias for convolution in self.convolutions],  # type: ignore[misc]
            activation=self.activation,
            precision=self.precision,
            backend=ops.backend_for("char_cnn", self.backend),
        )
