"""The encoder of a word's characters, bytes or entries of a lexicon to its context-free vector, and their cache."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import (
    Module,
    check_settings,
    load_state,
    read_bilm,
    read_uncalled,
    skip_init,
    without_prefix,
)
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.modules.char_cnn import Highway, character_features, highway, reset_convolution, reset_linear
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops._checks import IDS, check_tensor, described
from elmo_fast.text.characters import ByteSpelling, LexiconSpelling, Spelling

CACHE_SIZE = 16384


class WordCache:
    """At most `size` word vectors; the least recently used one is dropped first.

    A word's vector depends on the word and the weights alone, so a cache belongs to one call that owns the weights
    while it runs (`embed_file`, `encode`, an evaluation): it is created when the call starts and dropped when it ends.
    It never looks at the weights. Several threads of the call may share it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._slots: OrderedDict[bytes, int] = OrderedDict()
        self._vectors: Tensor | None = None

    def lookup(self, words: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the vectors [U, D] of distinct words [U, C] (whole numbers, on the CPU).

        `encode` computes only those that are not cached.
        """
        rows = np.ascontiguousarray(words.numpy().astype(np.int32))
        width, flat = rows.shape[1] * rows.itemsize, rows.tobytes()
        keys = [flat[start : start + width] for start in range(0, len(flat), width)]
        with self._lock:
            slots = [self._slots.get(key, -1) for key in keys]
            missing = [row for row, slot in enumerate(slots) if slot < 0]
            for key, slot in zip(keys, slots, strict=True):
                if slot >= 0:
                    self._slots.move_to_end(key)
            vectors = None
            if self._vectors is not None and len(missing) < len(keys):
                vectors = self._vectors[[max(slot, 0) for slot in slots]]
        if vectors is not None and not missing:
            return vectors
        fresh = encode(words[missing] if len(missing) < len(keys) else words)  # other threads may look up meanwhile
        with self._lock:
            self._store([keys[row] for row in missing], fresh)
        if vectors is None:
            return fresh
        vectors[missing] = fresh
        return vectors

    def _store(self, keys: list[bytes], fresh: Tensor) -> None:
        """Store the last `size` of the fresh vectors, in place of the least recently used ones if there is no room."""
        keys, fresh, slots = keys[-self.size :], fresh[-self.size :], []
        for key in keys:
            slot = self._slots.get(key, len(self._slots))
            if slot == self.size:
                slot = self._slots.popitem(last=False)[1]
            self._slots[key] = slot
            self._slots.move_to_end(key)  # another thread may have stored it meanwhile
            slots.append(slot)
        if self._vectors is None:
            with torch.inference_mode(False):  # so that the store can be written in and out of inference mode
                self._vectors = fresh.new_empty(0, fresh.shape[1])
        if (rows := max(slots, default=-1) + 1) > len(self._vectors):
            self._vectors.resize_(min(self.size, max(2 * rows, 1024)), fresh.shape[1])
        self._vectors[slots] = fresh


class CharacterEncoder(Module):
    """Context-free word vectors from character ids: convolutions, maximum, highways, projection; BOS and EOS added.

    Of a model of ELMoForManyLangs: a projection of a word's own vector and of its characters'; either may be absent.

        vector = [words[w], highways(char_cnn(c))] W^T + b

    Args:
        options_file: bilm-tf's options.json, a model's folder or archive (then no weight_file), or an ElmoOptions.
        weight_file: any checkpoint that elmo_fast.checkpoints reads; None (with an ElmoOptions): initialized
            as in bilm-tf.
        requires_grad: whether the parameters are trained.
        unique_words: whether each distinct word of a batch is encoded once (exact, and faster). On a GPU the host does
            not wait for their number.
        cache_size: maximum number of word vectors that one call over many batches caches (`embed_file`, `encode`, ...;
            exact; on the CPU); 0 disables it. A call of this module caches nothing.
        precision, backend: as in BiLM.
        state: the tensors, instead of a weight_file, under the names of this module's state_dict.

    Raises: ElmoFastError, CheckpointError.

    Source: Kim et al. 2016; Peters et al. 2018; parameter names as in AllenNLP's `_ElmoCharacterEncoder`. Che et al.
    2018, "Towards Better UD Parsing"; ELMoForManyLangs, modules/token_embedder.py.
    """

    _waits_for_nothing = False  # use the path without host syncs on the CPU too; always so on a GPU
    _word_vectors: nn.Parameter | None

    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | None = None,
        requires_grad: bool = False,
        *,
        unique_words: bool = True,
        cache_size: int = CACHE_SIZE,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_settings(precision, backend)
        options, weights = read_bilm(options_file, weight_file)
        state = without_prefix(weights, "_token_embedder.") if state is None else state
        if options.reads_word_ids:
            raise ElmoFastError("options must be of a model of characters; got a model of word ids (BiLM reads both)")
        self._characters = cnn = options.char_cnn
        self._reads_lexicons = options.lexicon is not None  # the word's id is behind its characters'
        self.spelling: Spelling
        if options.lexicon is not None:
            longest = options.lexicon.longest_word if cnn is None else cnn.max_characters_per_token - 2
            self.spelling = LexiconSpelling(options.lexicon.characters, options.lexicon.words, longest)
        elif cnn is not None:
            self.spelling = ByteSpelling(cnn.max_characters_per_token)
        begin, end = self.spelling.rows([self.spelling.begin, self.spelling.end]).tolist()
        padding = max(begin, key=begin.count)
        others = [(slot, marks) for slot, marks in enumerate(zip(begin, end, strict=True)) if {*marks} != {padding}]
        self._marker_padding, self._marker_slots = padding, others
        self.output_dim = options.lstm.projection_dim
        self.requires_grad = requires_grad
        self.unique_words, self.precision, self.backend = unique_words, precision, backend
        self.cache_size = cache_size
        self._packed_filters, self._packed_layers, self._packed_projection = (ops.PackedWeights() for _ in range(3))
        if cnn is not None:
            self._char_embedding_weights = nn.Parameter(torch.zeros(options.n_character_rows, cnn.embedding_dim))
            for i, (width, number) in enumerate(cnn.filters):
                self.add_module(f"char_conv_{i}", skip_init(nn.Conv1d, cnn.embedding_dim, number, width))
            self._highways = Highway(cnn.n_filters, cnn.n_highway, initialise=False)
        projects = options.n_features != self.output_dim if state is None else "_projection.weight" in state
        self._projection = skip_init(nn.Linear, options.n_features, self.output_dim) if projects else None
        table = None
        if options.lexicon is not None and options.lexicon.words:
            table = nn.Parameter(torch.zeros(len(options.lexicon.words) + 1, options.lexicon.word_dim))
        self.register_parameter("_word_vectors", table)
        load_state(self, state, str(weight_file or "state"))
        self.requires_grad_(requires_grad)

    @property
    def _convolutions(self) -> list[nn.Conv1d]:
        count = 0 if self._characters is None else len(self._characters.filters)
        return [self._modules[f"char_conv_{i}"] for i in range(count)]  # type: ignore[misc]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the parameters as in bilm-tf.

        Characters U(-1, 1); filters U(-.05, .05) under relu, N(0, 1/(k·E)) under tanh; highways and projection
        N(0, 1/fan_in); the gates' bias 2, so that they carry at first; all other biases 0; vectors of words U(-1, 1).
        """
        if self._characters is not None:
            self._char_embedding_weights.uniform_(-1, 1)
            self._char_embedding_weights[0] = 0
            for convolution in self._convolutions:
                reset_convolution(convolution, self._characters.activation)
            self._highways.reset_parameters()
            if self._projection is not None:
                reset_linear(self._projection)
        elif self._projection is not None:
            self._projection.reset_parameters()
        if self._word_vectors is not None:
            self._word_vectors[1:].uniform_(-1, 1)

    @property
    def markers(self) -> Tensor:
        """The ids of BOS and EOS, [2, S] int64, on the parameters' device."""
        # Created on demand: a buffer outside the state_dict would be lost on the meta device.
        padding, device = self._marker_padding, next(self.parameters()).device
        rows = torch.full((2, self.spelling.slots), padding, dtype=torch.int64, device=device)
        for slot, (begin, end) in self._marker_slots:
            rows[:, slot].fill_(begin)  # on the device: a CUDA graph may be captured around this
            if end != begin:
                rows[1, slot].fill_(end)
        return rows

    def ids(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Return the input of `forward` for tokenized sentences, [B, T, S] int64. Raises: ElmoFastError."""
        return self.spelling.batch_to_ids(batch)

    def get_output_dim(self) -> int:
        """D, the width of a word's vector."""
        return self.output_dim

    def new_cache(self) -> WordCache | None:
        """Return a cache for one call that owns the weights while it runs; None where it would not help."""
        on_cpu = next(self.parameters()).device.type == "cpu"
        return WordCache(self.cache_size) if self.cache_size > 0 and on_cpu else None

    def forward(self, inputs: Tensor, cache: WordCache | None = None) -> dict[str, Tensor]:
        """Return the vectors of a batch's words, with BOS and EOS added to each sentence.

        Args:
            inputs: ids of `spelling`, as from batch_to_ids, [B, T, S] int64; rows of 0 are padding. Of bytes S = C.
            cache: word vectors of earlier batches, from `new_cache`; None: no batches came before.

        Returns:
            'token_embedding': [B, T+2, D]; 'mask': [B, T+2] bool.
        """
        slots = self.spelling.slots
        if not isinstance(inputs, Tensor) or inputs.shape[2:] != (slots,) or inputs.is_floating_point():
            check_tensor("CharacterEncoder", "inputs", inputs, IDS)
            raise ElmoFastError(
                f"inputs must be ids of shape [B, T, {slots}], whole numbers, as from the model's batch_to_ids; "
                f"got {described(inputs)}"
            )
        begin, end = self.markers
        ids, mask = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=-1), begin, end)
        return {"token_embedding": self.encode(ids, cache=cache), "mask": mask}

    def encode(
        self, ids: Tensor, spelled: Callable[[Tensor], Tensor] | None = None, cache: WordCache | None = None
    ) -> Tensor:
        """Encode words to vectors [..., D], with nothing added.

        ids: character ids, [..., C] int64 or, with `spelled`, numbers of words, [...] int64; spelled: numbers [U] to
        character ids [U, C]; cache: as in `forward`; without gradients only.
        """
        outer, width = (ids.shape[:-1], ids.shape[-1]) if spelled is None else (ids.shape, 1)
        rows, inverse, backend = ids.reshape(-1, width), None, ops.backend_for("unique_rows", self.backend)
        if self.unique_words and (self._waits_for_nothing or rows.device.type == "cuda"):
            # The host does not ask for the number of distinct words: only the device knows it.
            unique, inverse, count, order = ops.ordered_unique_rows(rows, backend=backend)
            unique = unique if spelled is None else spelled(unique[:, 0])
            vectors = ops.gather_rows(self._encode(unique, count), inverse, order=order, backend=backend)
            return vectors.reshape(*outer, self.output_dim)
        if self.unique_words and not (torch.compiler.is_compiling() or rows.is_meta):
            rows, inverse = ops.unique_rows(rows, backend=backend)
        rows = rows if spelled is None else spelled(rows[:, 0])
        vectors = self._encode(rows) if cache is None else cache.lookup(rows, self._encode)
        vectors = vectors if inverse is None else vectors.index_select(0, inverse)
        return vectors.reshape(*outer, self.output_dim)

    def encode_words(self, words: list[str]) -> Tensor:
        """Return the vectors [n, D] of n words."""
        ids = self.ids([words])[0].to(next(self.parameters()).device)
        return torch.cat([self.encode(some) for some in ids.split(1024)])

    def distinct(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return the input of `forward_distinct` for tokenized sentences, both int64. Raises: ElmoFastError.

        ids of the distinct words, the longest first (kernels work on words of similar length together), [U, S]; numbers
        of the words of each sentence with BOS and EOS, from 1 on, 0 at padding, [B, T+2]. Row 0 of the ids is padding.
        """
        rows, numbers = self.spelling.distinct(batch, markers=True)
        order = np.argsort(-np.count_nonzero(rows[1:] != rows[1:, -1:], axis=1), kind="stable") + 1
        rank = np.zeros(len(rows), np.int64)
        rank[order] = np.arange(1, len(rows))
        rows[1:] = rows[order]
        return torch.from_numpy(rows), torch.from_numpy(rank[numbers])

    def forward_distinct(self, rows: Tensor, numbers: Tensor, cache: WordCache | None = None) -> tuple[Tensor, Tensor]:
        """Return what `forward` does, of sentences whose distinct words are known: `distinct`."""
        if cache is None:
            vectors = self.encode_distinct(rows, numbers.flatten())
        else:
            vectors = cache.lookup(rows, self._encode).index_select(0, numbers.flatten())
        return vectors.view(*numbers.shape, self.output_dim), numbers > 0

    def encode_distinct(
        self, rows: Tensor, inverse: Tensor, ranks: Tensor | None = None, places: Tensor | None = None
    ) -> Tensor:
        """Return the vectors [N, D] of words of which the distinct ones are known.

        Args:
            rows: character ids of the distinct words, [U, C] int64; rows that `inverse` does not name count nowhere.
            inverse: which of them each word is, [N] int64.
            ranks, places: `inverse` sorted, and the place of each before, [N] int64: the order of sums; None: it sorts.
        """
        order = None if ranks is None or places is None else ops.RowOrder(ranks, places)
        backend = ops.backend_for("unique_rows", self.backend)
        return ops.gather_rows(self._encode(rows), inverse, order=order, backend=backend)

    def _encode(self, rows: Tensor, count: Tensor | None = None) -> Tensor:
        """Encode distinct words [N, S] to vectors [N, D]; those from `count` on are zeros or unused."""
        read_uncalled(*self.children())
        settings: dict[str, Any] = {"precision": self.precision, "count": count, "backend": self.backend}
        parts = [] if self._word_vectors is None else [F.embedding(rows[:, -1], self._word_vectors)]
        if self._characters is not None:
            features = character_features(
                rows[:, :-1] if self._reads_lexicons else rows,
                self._char_embedding_weights,
                self._convolutions,
                activation=self._characters.activation,
                packed=self._packed_filters,
                **settings,
            )
            projection = None if self._reads_lexicons else self._projection
            parts.append(highway(features, self._highways._layers, projection, packed=self._packed_layers, **settings))
            if not self._reads_lexicons:
                return parts[0]
        return highway(torch.cat(parts, dim=1), [], self._projection, packed=self._packed_projection, **settings)
