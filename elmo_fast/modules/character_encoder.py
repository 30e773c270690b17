"""Encodes the characters of a word to its context-free vector."""

import math
import os
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings, load_state, plain, read_bilm, section, unset
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.modules.word_cache import WordCache
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops import _packed, _tuned
from elmo_fast.ops._checks import given
from elmo_fast.text import BOS, BOW, EOS, EOW, PAD, batch_to_ids

CACHE_SIZE = 16384


class Highways(nn.Module):
    """The parameters of the highway layers: one Linear(W, 2W) each; rows: transform, then gate."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self._layers = nn.ModuleList(unset(nn.Linear, width, 2 * width) for _ in range(layers))

    @property
    def layers(self) -> list[nn.Linear]:
        """The layers, the lowest first."""
        return [plain(layer) for layer in self._layers]  # type: ignore[misc]


class CharacterEncoder(nn.Module):
    """Context-free word vectors from character ids: convolutions, maximum, highways, projection; BOS and EOS added.

    Args:
        options_file: bilm-tf's options.json, a folder with a model (then no weight_file), or an ElmoOptions.
        weight_file: any checkpoint that elmo_fast.checkpoints reads; None (with an ElmoOptions): initialized
            as in bilm-tf.
        requires_grad: whether the parameters are trained.
        unique_words: whether each distinct word of a batch is encoded once (exact, and faster). On a GPU the host does
            not wait for their number.
        cache_size: how many word vectors are cached across batches without gradients (exact; on the CPU); 0: none.
        precision: "float32" | "bfloat16" | "float16" | "int8", of the operands of the matrix products; int8 has no
            gradients.
        backend: one of op_choices.BACKENDS; an op without it takes "auto".
        state: the tensors, instead of a weight_file, under the names of this module's state_dict.

    Raises: ElmoFastError, CheckpointError.

    Source: Kim et al. 2016; Peters et al. 2018; parameter names as in AllenNLP's `_ElmoCharacterEncoder`.
    """

    _waits_for_nothing = False  # use the path without host syncs on the CPU too; always so on a GPU

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
        check_settings(precision, backend, "unique_rows", "char_cnn", "highway")
        options, weights = read_bilm(options_file, weight_file)
        state = section(weights, "_token_embedder.") if state is None else state
        if options.char_cnn is None:
            raise ElmoFastError("options: wanted a model of characters (char_cnn); got a model of word ids")
        self._characters = options.char_cnn
        self.output_dim = options.lstm.projection_dim
        self.requires_grad = requires_grad
        self.unique_words, self.precision, self.backend = unique_words, precision, backend
        self._cache = WordCache(cache_size)
        projects = self._characters.n_filters != self.output_dim
        self._make_parameters(projects if state is None else "_projection.weight" in state)
        if state is None:
            self.reset_parameters()
        else:
            load_state(self, state, str(weight_file or "state"))
        self.requires_grad_(requires_grad)

    def _make_parameters(self, project: bool) -> None:
        characters = self._characters
        self._char_embedding_weights = nn.Parameter(torch.zeros(262, characters.embedding_dim))
        for i, (width, number) in enumerate(characters.filters):
            self.add_module(f"char_conv_{i}", unset(nn.Conv1d, characters.embedding_dim, number, width))
        self._highways = Highways(characters.n_filters, characters.n_highway)
        self._projection = unset(nn.Linear, characters.n_filters, self.output_dim) if project else None

    @property
    def _convolutions(self) -> list[nn.Conv1d]:
        return [plain(self.get_submodule(f"char_conv_{i}")) for i in range(len(self._characters.filters))]  # type: ignore[misc]

    @property
    def _linears(self) -> list[nn.Linear]:
        return self._highways.layers + ([] if self._projection is None else [self._projection])

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initializes the parameters as in bilm-tf.

        Characters U(-1, 1); filters U(-.05, .05) under relu, N(0, 1/(k·E)) under tanh; highways and projection
        N(0, 1/fan_in); the gates' bias 2, so that they carry at first; all other biases 0.
        """
        self._char_embedding_weights.uniform_(-1, 1)
        self._char_embedding_weights[0] = 0
        for convolution in self._convolutions:
            if self._characters.activation == "relu":
                convolution.weight.uniform_(-0.05, 0.05)
            else:
                convolution.weight.normal_(0, math.sqrt(1 / convolution.weight[0].numel()))
        for layer in self._linears:
            layer.weight.normal_(0, math.sqrt(1 / layer.in_features))
        for bias in [c.bias for c in self._convolutions] + [layer.bias for layer in self._linears]:
            if bias is not None:
                bias.zero_()
        for layer in self._highways.layers:
            layer.bias[layer.in_features :] = 2
        self._cache.clear()

    @property
    def max_characters_per_token(self) -> int:
        """C, the slots of a word."""
        return self._characters.max_characters_per_token

    @property
    def markers(self) -> Tensor:
        """The character ids of BOS and EOS, [2, C] int64, on the parameters' device."""
        # Created on demand: a buffer outside the state_dict would be lost on the meta device.
        device = self._char_embedding_weights.device
        rows = torch.full((2, self.max_characters_per_token), PAD + 1, dtype=torch.int64, device=device)
        for place, mark in ((rows[:, 0], BOW), (rows[0, 1], BOS), (rows[1, 1], EOS), (rows[:, 2], EOW)):
            place.fill_(mark + 1)  # on the device: a CUDA graph may be captured around this
        return rows

    def get_output_dim(self) -> int:
        """D, the width of a word's vector."""
        return self.output_dim

    @property
    def cache_size(self) -> int:
        """How many word vectors may be cached across batches; can be assigned (0: none)."""
        return self._cache.size

    @cache_size.setter
    def cache_size(self, size: int) -> None:
        self._cache = WordCache(size)

    def clear_cache(self) -> None:
        """Clears the vectors cached across batches; ops.refresh_weights clears all other copies of parameters."""
        self._cache.clear()

    def train(self, mode: bool = True) -> "CharacterEncoder":
        """As torch.nn.Module.train; training mode also clears the vectors cached across batches."""
        if mode:
            self._cache.clear()
        return super().train(mode)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Vectors of a batch's words, with BOS and EOS added to each sentence.

        Args:
            inputs: character ids from batch_to_ids, [B, T, C] int64; rows of 0 are padding.

        Returns:
            'token_embedding': [B, T+2, D]; 'mask': [B, T+2] bool.
        """
        self._check(inputs)
        begin, end = self.markers
        ids, mask = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=-1), begin, end)
        return {"token_embedding": self.encode(ids), "mask": mask}

    def encode(self, ids: Tensor) -> Tensor:
        """Vectors [..., D] of words given as character ids [..., C] int64, with nothing added."""
        rows = ids.reshape(-1, ids.shape[-1])
        vectors = self._distinct(rows, lambda unique: unique) if self.unique_words else self._kept(rows)
        return vectors.reshape(*ids.shape[:-1], self.output_dim)

    def encode_words(self, words: list[str]) -> Tensor:
        """Vectors [n, D] of n words."""
        ids = batch_to_ids([words])[0].to(self._char_embedding_weights.device)
        return torch.cat([self.encode(some) for some in ids.split(1024)])

    def encode_types(self, types: Tensor, characters: Callable[[Tensor], Tensor]) -> Tensor:
        """Vectors [..., D] of words given by number; each distinct one is encoded once.

        Args:
            types: numbers of words, any shape, int64.
            characters: the words' spelling: numbers [U] to character ids [U, C] int64.
        """
        vectors = self._distinct(types.reshape(-1, 1), lambda unique: characters(unique[:, 0]))
        return vectors.reshape(*types.shape, self.output_dim)

    def _distinct(self, rows: Tensor, spelled: Callable[[Tensor], Tensor]) -> Tensor:
        """Vectors of rows that name words, each distinct one encoded once; spelled: such rows to character ids."""
        backend = ops.backend_for("unique_rows", self.backend)
        if self._waits_for_nothing or rows.device.type == "cuda":
            if _tuned.choice(_tuned.distinct_words(self.precision), rows.device) == 0:
                return self._encode(spelled(rows))
            # The host does not ask for the number of distinct words: only the device knows it.
            unique, inverse, count, order = ops.ordered_unique_rows(rows, backend=backend)
            return ops.gather_rows(self._encode(spelled(unique), count), inverse, order=order, backend=backend)
        if torch.compiler.is_compiling() or rows.is_meta:
            return self._kept(spelled(rows))
        unique, inverse = ops.unique_rows(rows, backend=backend)
        return self._kept(spelled(unique)).index_select(0, inverse)

    def _kept(self, rows: Tensor) -> Tensor:
        if self.cache_size <= 0 or torch.compiler.is_compiling() or rows.device.type != "cpu":
            return self._encode(rows)
        parameters = list(self.parameters())
        if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
            return self._encode(rows)
        settings = (self.precision, self.backend, _packed.generation())
        return self._cache.lookup(rows, self._encode, parameters, *settings)

    def _encode(self, rows: Tensor, count: Tensor | None = None) -> Tensor:
        convolutions, layers = self._convolutions, self._highways.layers
        projection = None if self._projection is None else plain(self._projection)
        features = ops.char_cnn(
            rows,
            self._char_embedding_weights,
            [c.weight for c in convolutions],
            [c.bias for c in convolutions],  # type: ignore[misc]
            activation=self._characters.activation,
            precision=self.precision,
            count=count,
            backend=ops.backend_for("char_cnn", self.backend),
        )
        return ops.highway(
            features,
            [layer.weight for layer in layers],
            [layer.bias for layer in layers],
            *((None, None) if projection is None else (projection.weight, projection.bias)),
            precision=self.precision,
            count=count,
            backend=ops.backend_for("highway", self.backend),
        )

    def _check(self, inputs: Tensor) -> None:
        slots = self.max_characters_per_token
        if inputs.dim() != 3 or inputs.shape[-1] != slots or inputs.is_floating_point():
            raise ElmoFastError(
                f"inputs must be character ids of shape [B, T, {slots}], whole numbers, as from batch_to_ids; "
                f"got {given(inputs)}"
            )
