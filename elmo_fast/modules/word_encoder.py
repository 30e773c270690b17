"""Context-free vectors of words by number: tables with one row per word."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import Module, load_state
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.modules.character_encoder import WordCache
from elmo_fast.ops._checks import IDS, check_tensor, described
from elmo_fast.ops._table_rows import table_rows
from elmo_fast.text import Vocabulary, checked_sentences


class WordEncoder(Module):
    """Context-free word vectors from word ids: rows of a table; BOS and EOS added.

        vector of the word of id i = weight[i + 1]

    Row 0 is zero and stands for padding. A word outside the vocabulary has the vector of <UNK>.

    Args:
        options: of a model of word ids: n_tokens_vocab = V words, projection_dim = D.
        requires_grad: whether the table is trained.
        vocabulary: the V words, which `forward` and `ids` need and `encode` does not.
        state: {"weight": [V + 1, D]}; None: bilm-tf's initialisation.

    Attributes:
        weight: [V + 1, D]; sparse: whether its gradient is that of the rows used (COO).

    Raises: ElmoFastError, CheckpointError.

    Source: bilm-tf, bilm/training.py (`_build_word_embeddings`).
    """

    sparse = False

    def __init__(
        self,
        options: ElmoOptions,
        requires_grad: bool = False,
        *,
        vocabulary: Vocabulary | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        words = options.n_tokens_vocab
        if not options.reads_word_ids or words is None:
            raise ElmoFastError("options must be of a model of word ids (n_tokens_vocab, no char_cnn); got another")
        if vocabulary is not None:
            vocabulary.check(words, options.vocabulary_sha256)
        self.output_dim, self.vocabulary = options.lstm.projection_dim, vocabulary
        self.weight = nn.Parameter(torch.zeros(words + 1, self.output_dim))
        load_state(self, state, "_word_embedding")
        self.weight.requires_grad_(requires_grad)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Sample a new table as bilm-tf does, U(-a, a) with a = √(6 / (V + D)); row 0 stays zero."""
        words, width = len(self.weight) - 1, self.output_dim
        bound = math.sqrt(6 / (words + width))
        self.weight[1:].uniform_(-bound, bound)
        self.weight[0] = 0

    @property
    def markers(self) -> Tensor:
        """The ids of BOS and EOS, + 1, [2] int64. Raises: ElmoFastError if the vocabulary is unknown."""
        vocabulary = self.known()
        return torch.tensor([vocabulary.bos + 1, vocabulary.eos + 1], device=self.weight.device)

    def encode(self, ids: Tensor) -> Tensor:
        """Return the vectors [..., D] of the rows `ids` [...] int64, with nothing added."""
        if self.sparse:
            return table_rows(self.weight, ids.flatten(), sparse=True, padding=0).view(*ids.shape, -1)
        return F.embedding(ids, self.weight, padding_idx=0)

    def new_cache(self) -> None:
        """Do nothing: the rows of a table need no cache."""

    def known(self) -> Vocabulary:
        """Return the vocabulary. Raises ElmoFastError if none was given."""
        if self.vocabulary is None:
            raise ElmoFastError(
                "this model reads word ids, and its words are not known here; put its vocab.txt next to the model's "
                "files, or give vocabulary=Vocabulary.read(FILE)"
            )
        return self.vocabulary

    def ids(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Return the word ids + 1 of each sentence, then zeros, [B, T] int64; <UNK> for words outside the vocabulary.

        Raises: ElmoFastError if the vocabulary is unknown.
        """
        vocabulary, batch = self.known(), list(checked_sentences(batch, "batch"))
        ids = torch.zeros(len(batch), max(map(len, batch), default=0), dtype=torch.int64, device="cpu")
        for row, sentence in zip(ids, batch, strict=True):
            row[: len(sentence)] = torch.from_numpy(vocabulary.ids(sentence)) + 1
        return ids

    def forward(self, inputs: Tensor, cache: WordCache | None = None) -> dict[str, Tensor]:
        """Return the vectors of a batch's words, with BOS and EOS added to each sentence.

        Args:
            inputs: word ids + 1 as from `ids`, [B, T] int64; 0 is padding.
            cache: not used.

        Returns:
            'token_embedding': [B, T+2, D]; 'mask': [B, T+2] bool.
        """
        check_tensor("WordEncoder", "inputs", inputs, IDS)
        if inputs.dim() != 2 or inputs.is_floating_point():
            raise ElmoFastError(
                "inputs must be word ids + 1 of shape [B, T], whole numbers, as the model's batch_to_ids gives them; "
                f"got {described(inputs)}"
            )
        vocabulary = self.known()
        if inputs.device.type == "cpu" and inputs.numel() and not 0 <= inputs.min() <= inputs.max() < len(self.weight):
            raise ElmoFastError(
                f"inputs must be word ids + 1, from 0 to {len(self.weight) - 1}; got {inputs.min()} to {inputs.max()}"
            )
        ids, mask = add_sentence_boundary_token_ids(inputs, inputs > 0, vocabulary.bos + 1, vocabulary.eos + 1)
        return {"token_embedding": self.encode(ids), "mask": mask}


class CachedWords(Module):
    """The vectors of n words by their index, computed once (AllenNLP's vocab_to_cache); the first one is the padding.

    Args:
        encode: the vectors [n, D] of n words.
        words: to be cached.
        trained: whether the vectors are trained, separately from their encoder.
        boundaries: the words that stand for BOS and EOS.

    Attributes:
        weight: [n, D]; row 0 is not trained.
    """

    def __init__(
        self, encode: Callable[[list[str]], Tensor], words: list[str], trained: bool, boundaries: tuple[str, str]
    ) -> None:
        super().__init__()
        with torch.no_grad():
            vectors = encode([*boundaries, *words])
        self._encode_words, self._boundaries = encode, boundaries
        self.weight = nn.Parameter(vectors[2:].clone(), requires_grad=trained)
        self._boundary_vectors = vectors[:2].clone()

    def covers(self, indices: Tensor) -> bool:
        """Return whether all indices are of cached words.

        True without a look while compiling and on meta, where an index out of range is an error.
        """
        if torch.compiler.is_compiling() or indices.is_meta or indices.numel() == 0:
            return True
        return int(indices.min()) >= 0 and int(indices.max()) < len(self.weight)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """As WordEncoder's, of indices [B, T] int64; 0 is padding."""
        if self._boundary_vectors.device != self.weight.device:  # the module was moved, perhaps from "meta"
            with torch.no_grad():
                self._boundary_vectors = self._encode_words(list(self._boundaries))
        count, (begin, end) = len(self.weight), self._boundary_vectors.to(self.weight.dtype)
        ids, mask = add_sentence_boundary_token_ids(inputs, inputs > 0, count, count + 1)
        vectors = F.embedding(torch.where(ids < count, ids, 0), self.weight, padding_idx=0)
        vectors = torch.where((ids == count)[..., None], begin, vectors)
        return {"token_embedding": torch.where((ids == count + 1)[..., None], end, vectors), "mask": mask}
