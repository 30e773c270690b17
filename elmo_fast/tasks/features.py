"""Features of words: static vectors, characters, and mixes of the layers of a biLM."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.checkpoints import pretrained_folder
from elmo_fast.embed.layers import layer_number
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings, read_uncalled, skip_init
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.boundaries import mask_without_boundaries
from elmo_fast.modules.char_cnn import character_features
from elmo_fast.modules.scalar_mix import ScalarMix, mixes
from elmo_fast.op_choices import Backend, InferencePrecision, Precision
from elmo_fast.static import Vectors
from elmo_fast.text.characters import MAX_CHARACTERS, PAD, ByteSpelling

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout: each element of x is 0 with a chance of p, else 1 / (1 - p) times itself; x in evaluation.

    On the CPU 16 random bits decide on an element (p is rounded to a 65536th, the factor goes by what it is rounded
    to), which SFC64 draws from a seed of torch's generator: torch.manual_seed decides on all of them. Elsewhere it is
    torch's.

    Args:
        x: any shape, float32 or float64.
        p: 0 <= p < 1.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    dropped = min(round(p * _LEVELS), _LEVELS - 1)
    seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    bits = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.uint16)[: x.numel()]
    mask = torch.from_numpy(bits >= dropped).view(x.shape).to(x.dtype)
    return x * mask.mul_(_LEVELS / (_LEVELS - dropped))


_IDS = 262  # of ByteSpelling: bytes, markers and padding, less one, as ELMo's


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
        check_settings(precision, backend)
        if not filters or any(not 1 <= width <= max_characters or number < 1 for width, number in filters):
            raise ElmoFastError(f"filters must be pairs (width 1 to {max_characters}, number from 1); got {filters!r}")
        self.filters, self.max_characters = [tuple(pair) for pair in filters], max_characters
        self.activation, self.precision, self.backend = activation, precision, backend
        self.embedding = nn.Parameter(torch.empty(_IDS, embedding_dim))
        convolutions = (skip_init(nn.Conv1d, embedding_dim, number, width) for width, number in self.filters)
        self.convolutions = nn.ModuleList(convolutions)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the parameters: characters U(±√(3/E)), filters glorot-uniform, biases 0."""
        bound = math.sqrt(3 / self.embedding.shape[1])
        self.embedding.uniform_(-bound, bound)
        for convolution in self.convolutions:
            nn.init.xavier_uniform_(convolution.weight)  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]

    def get_output_dim(self) -> int:
        """W."""
        return sum(number for _, number in self.filters)

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the vectors of a batch of tokenized sentences, [B, T, W], 0 at padding."""
        rows, numbers = ByteSpelling(self.max_characters).distinct(sentences)
        # Beyond the longest word and one window of padding all windows are alike: their maximum is the same.
        longest = int((rows[1:] != PAD + 1).any(axis=0).sum())
        ids = torch.from_numpy(rows[1:, : longest + max(width for width, _ in self.filters)])
        read_uncalled(self.convolutions)
        vectors = character_features(
            ids.to(self.embedding.device),
            self.embedding,
            self.convolutions,
            activation=self.activation,
            precision=self.precision,
            backend=ops.backend_for("char_cnn", self.backend),
        )
        with_padding = F.pad(vectors, (0, 0, 1, 0))
        at = torch.from_numpy(numbers).to(vectors.device)
        return with_padding.index_select(0, at.reshape(-1)).reshape(*at.shape, vectors.shape[1])


_PADDING, _UNKNOWN, _FIRST = 0, 1, 2


class StaticFeatures(nn.Module):
    """A vector [D] for each word, looked up as written, else in lower case, else the vector of unknown words.

    The vector of unknown words is always trained; it starts as the mean of all vectors. A frozen table is not in the
    state_dict, because its file has it; it moves to the vector's device when it is used.

    Args:
        vectors: words and matrix [V, D] float32.
        trainable: whether the table is trained too.
        replaced: indices of words that are replaced by the unknown word half of the time in training, so that a table
            of the training text's own words learns a vector for unknown words.

    Raises: ElmoFastError: no words, numbers that are not finite.

    Source: of `replaced`: Lample et al. 2016, section 4.3 (words that occur once, with probability 0.5).
    """

    table: Tensor

    def __init__(self, vectors: Vectors, *, trainable: bool = False, replaced: Iterable[int] = ()) -> None:
        super().__init__()
        matrix = vectors.matrix
        if not len(matrix):
            raise ElmoFastError("vectors must have at least one word; got none")
        if not (finite := np.isfinite(matrix).all(axis=1)).all():
            word = vectors.words[int(finite.argmin())]
            raise ElmoFastError(f"vectors must be finite numbers; those of {word!r} are not")
        rows = torch.zeros(_FIRST + len(matrix), matrix.shape[1], device="cpu")
        np.copyto(rows.numpy()[_FIRST:], matrix)
        self.words = list(vectors.words)
        self._numbers = {word: number for number, word in enumerate(self.words, _FIRST)}
        self.unknown = nn.Parameter(rows[_FIRST:].mean(0).to(torch.get_default_device()))
        self._replaced = torch.tensor(sorted(replaced), dtype=torch.int64, device="cpu") + _FIRST
        self.trainable = trainable
        # A frozen table is no buffer: to_empty and the device "meta" would drop its values, which no state_dict has.
        self.table = nn.Parameter(rows.to(torch.get_default_device())) if trainable else rows

    @classmethod
    def random(cls, sentences: Iterable[Sequence[str]], width: int) -> "StaticFeatures":
        """Return a table of the words of `sentences`, in the order of their names, drawn from U(±√(3/D)) and trained.

        Words that occur once are `replaced`.
        """
        counts = Counter(word for words in sentences for word in words)
        words = sorted(counts)
        bound = math.sqrt(3 / width)
        matrix = torch.empty(len(words), width, device="cpu").uniform_(-bound, bound).numpy()
        once = [number for number, word in enumerate(words) if counts[word] == 1]
        return cls(Vectors(words, matrix), trainable=True, replaced=once)

    def get_output_dim(self) -> int:
        """D."""
        return self.table.shape[1]

    def forward(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the vectors of a batch of tokenised sentences, [B, T, D], 0 at padding."""
        get = self._numbers.get
        rows = [[get(word) or get(word.lower(), _UNKNOWN) for word in words] for words in sentences]
        longest = max(map(len, rows), default=0)
        padded = [row + [_PADDING] * (longest - len(row)) for row in rows]
        numbers = torch.tensor(padded, dtype=torch.int64, device="cpu")
        if self.training and len(self._replaced):
            replaced = torch.rand(numbers.shape, device="cpu") < 0.5
            numbers[replaced & torch.isin(numbers, self._replaced)] = _UNKNOWN
        some_unknown = bool((numbers == _UNKNOWN).any())
        table = self.table.to(self.unknown)
        if not self.trainable and not table.is_meta:
            self.table = table
        numbers = numbers.to(table.device)
        vectors = F.embedding(numbers, table, _PADDING)
        return torch.where((numbers == _UNKNOWN)[..., None], self.unknown, vectors) if some_unknown else vectors


def load_bilm(
    model: str | os.PathLike[str],
    prefix: str | None = None,
    *,
    fine_tune: bool = False,
    precision: InferencePrecision = "float32",
    backend: Backend = "auto",
) -> BiLM:
    """Return the biLM of a folder, a run, or a name of the hub, every sentence of which starts from the state zero.

    prefix: as in BiLM; fine_tune: whether its weights are trained

    Raises: ElmoFastError, CheckpointError.
    """
    folder = pretrained_folder(model)
    return BiLM(folder, requires_grad=fine_tune, stateful=False, precision=precision, backend=backend, prefix=prefix)


class ElmoFeatures(nn.Module):
    """M mixes of a biLM's layers, each with its own weights, dropped out while training.

        y_m = gamma_m * sum_l softmax(w_m)_l * h_l

    The modules of the mixes are `scalar_mixes`. A biLM whose parameters are trained is a submodule. A frozen one is
    not: it is in no state_dict, and stays in evaluation mode; it moves to the mixes' device when it is run.

    Args:
        bilm: as load_bilm gives it; whether it is trained is whether its parameters require gradients. Every sentence
            starts from a zero state, whatever `bilm.stateful`.
        mixes: M; one for a task's input, one for its output, or two for both.
        layer: "mix": all layers, w learned; "top" or a number (0 the lowest, -1 the top): that layer alone, gamma
            learned.
        dropout: chance of dropping a number of a mix.
        l2: λ of the penalty.
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
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.fine_tuned = any(parameter.requires_grad for parameter in bilm.parameters())
        if self.fine_tuned:
            self.trained_bilm = bilm
        else:
            # In a list torch does not see it.
            self._frozen = [bilm.eval()]
        self.dropout, self.l2 = dropout, l2
        known, learned = bilm.num_layers, layer == "mix"
        if isinstance(layer, int) and -known <= layer < 0:
            layer += known
        self.layers = list(range(known)) if learned else [layer_number(layer, known, also='"mix", ')]
        self.scalar_mixes = [ScalarMix(len(self.layers), backend=backend) for _ in range(mixes)]
        for m, mix in enumerate(self.scalar_mixes):
            mix.scalar_parameters.requires_grad_(learned)
            self.add_module(f"scalar_mix_{m}", mix)

    @property
    def bilm(self) -> BiLM:
        """The biLM, frozen or trained."""
        return self.trained_bilm if self.fine_tuned else self._frozen[0]

    def get_output_dim(self) -> int:
        """2D, the width of a mix."""
        return self.bilm.get_output_dim()

    def forward(self, sentences: Sequence[Sequence[str]], layers: Tensor | None = None) -> Tensor:
        """Return the mixes of a batch of tokenised sentences, [M, B, T, 2D], 0 at padding.

        Args:
            sentences: B lists of words.
            layers: from LayerCache.batch, of these sentences: [L+1, B, T, 2D], or only those that `self.layers` numbers
                ([K, B, T, 2D]); None: the biLM is run.

        Raises: ElmoFastError: layers of another number or width, or for a biLM that is trained.
        """
        device = self.scalar_mixes[0].gamma.device
        if layers is None:
            bilm = self.bilm
            if next(bilm.parameters()).device != device:
                bilm.to(device)
            ids = bilm.batch_to_ids(sentences).to(device)
            with torch.set_grad_enabled(self.fine_tuned and torch.is_grad_enabled()):
                output = bilm(ids, stateful=False)
            mixed = mixes(self.scalar_mixes, [output["activations"][number] for number in self.layers], None)
            inner = mask_without_boundaries(output["mask"])
            mixed = torch.where(inner[..., None], mixed[:, :, 1:-1], 0)
        else:
            known, width = self.bilm.num_layers, self.get_output_dim()
            if self.fine_tuned or layers.shape[0] not in (len(self.layers), known) or layers.shape[-1] != width:
                what = "None, since the biLM is trained" if self.fine_tuned else f"{known} layers of width {width}"
                raise ElmoFastError(f"layers must be {what}; got {layers.shape[0]} of width {layers.shape[-1]}")
            picked = layers.to(device, non_blocking=True).unbind(0)
            if len(picked) != len(self.layers):
                picked = tuple(picked[number] for number in self.layers)
            mixed = mixes(self.scalar_mixes, picked, None)
        return dropout(mixed, self.dropout, self.training)

    def penalty(self) -> Tensor:
        """Return what is added to the loss, [].

            λ Σ_m Σ_l w_ml²

        The weights are those before the softmax; 0 for a single layer.

        It draws the mixes towards the average of the layers, as in section 3.3 of the paper. bilm-tf's
        weight_layers(l2_coef=λ) has the same sum: it takes the softmax of W + 1/(L+1), but that shift changes no
        softmax, and it squares W without it. gamma is not penalised in either.
        """
        return self.l2 * torch.cat([w for mix in self.scalar_mixes for w in mix.scalar_parameters]).square().sum()

    @torch.no_grad()
    def weights(self) -> list[list[float]]:
        """softmax(w) of each mix, M lists, in the order of `self.layers`."""
        return [torch.cat(list(mix.scalar_parameters)).softmax(0).tolist() for mix in self.scalar_mixes]

    @torch.no_grad()
    def gammas(self) -> list[float]:
        """Return gamma of each mix."""
        return [float(mix.gamma.detach()) for mix in self.scalar_mixes]
