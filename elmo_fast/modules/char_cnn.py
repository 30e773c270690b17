"""The character CNN and the highway layers as modules of their own, without the options of an ELMo."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import check_choice, check_counts
from elmo_fast.modules._loading import Module, check_settings, read_uncalled, skip_init
from elmo_fast.op_choices import ACTIVATIONS, Activation, Backend, InferencePrecision


class Highway(Module):
    """Highway layers, whose gates carry their input on, and a projection if one is asked for.

        p = W x + b,   g = σ(p[W:]),   x <- g · x + (1 - g) · relu(p[:W])        for each layer;   y = W_p x + b_p

    Args:
        width: W, of the inputs.
        num_layers: how many; 0: the projection alone.
        projection: D, width of the outputs; None: no projection (D = W).
        initialise: False leaves the parameters uninitialized, for a caller that fills them.
        precision, backend: as elmo_fast.ops.highway's.

    Attributes:
        _layers: one Linear(W, 2W) for each layer, the transform's rows before the gate's.

    Raises: ElmoFastError.

    Source: Srivastava et al. 2015, section 2; names and initialization as in AllenNLP's `Highway` and bilm-tf.
    """

    def __init__(
        self,
        width: int,
        num_layers: int = 1,
        projection: int | None = None,
        *,
        initialise: bool = True,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(width=width, num_layers=num_layers or None, projection=projection)
        check_settings(precision, backend)
        self.precision, self.backend, self._packed = precision, backend, ops.PackedWeights()
        self._layers = nn.ModuleList(skip_init(nn.Linear, width, 2 * width) for _ in range(num_layers))
        self._projection = None if projection is None else skip_init(nn.Linear, width, projection)
        if initialise:
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Sample weights from N(0, 1/fan_in); the gates' bias is 2, so that they carry at first, all others 0."""
        layers: list[Any] = list(self._layers)
        for layer in layers:
            reset_linear(layer)
            layer.bias[layer.in_features :] = 2
        if self._projection is not None:
            reset_linear(self._projection)

    def forward(self, x: Tensor) -> Tensor:
        """Return y [..., D] of x [..., W]."""
        read_uncalled(*self.children())
        y = highway(
            x.reshape(-1, x.shape[-1]),
            self._layers,
            self._projection,
            precision=self.precision,
            packed=self._packed,
            backend=self.backend,
        )
        return y.reshape(*x.shape[:-1], y.shape[-1])


class CharCNN(Module):
    """Vectors of words from their characters: convolutions of several widths, maximum, highway layers, projection.

        x = embedding[ids];   f = activation(max over positions of conv_k(x)), all widths k joined;   y = Highway(f)

    Args:
        filters: for each convolution its width in characters and its number of filters; their numbers sum to F.
        dim: E, width of a character's vector.
        highways: how many highway layers.
        projection: D, width of the outputs; None: no projection (D = F).
        num_characters: ids of characters are 0 to this, less 1; elmo_fast.batch_to_ids has 262.
        activation: "relu" or "tanh".
        precision, backend: as elmo_fast.ops.char_cnn's.

    Raises: ElmoFastError.

    Source: Kim et al. 2016, section 2; Peters et al. 2018, section 3.4; initialization as in bilm-tf.
    """

    def __init__(
        self,
        filters: Sequence[tuple[int, int]] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        dim: int = 16,
        highways: int = 2,
        projection: int | None = 512,
        *,
        num_characters: int = 262,
        activation: Activation = "relu",
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(dim=dim, num_characters=num_characters, filters=len(filters))
        check_choice("activation", activation, ACTIVATIONS)
        check_settings(precision, backend)
        self.activation, self.precision, self.backend = activation, precision, backend
        self._packed = ops.PackedWeights()
        self.embedding = skip_init(nn.Embedding, num_characters, dim)
        self.convolutions = nn.ModuleList(skip_init(nn.Conv1d, dim, number, width) for width, number in filters)
        width = sum(number for _, number in filters)
        self.highway = Highway(width, highways, projection, initialise=False, precision=precision, backend=backend)
        self.output_dim = width if projection is None else projection
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Characters U(-1, 1); filters U(-.05, .05) under relu, N(0, 1/(k·E)) under tanh, their biases 0; Highway."""
        self.embedding.weight.uniform_(-1, 1)
        for convolution in self.convolutions:
            reset_convolution(convolution, self.activation)  # type: ignore[arg-type]
        self.highway.reset_parameters()

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors [..., D] of words given as ids of characters [..., C] int64, C >= the widest filter."""
        read_uncalled(self.embedding, self.convolutions)
        features = character_features(
            ids.reshape(-1, ids.shape[-1]),
            self.embedding.weight,
            self.convolutions,
            activation=self.activation,
            precision=self.precision,
            packed=self._packed,
            backend=self.backend,
        )
        return self.highway(features).reshape(*ids.shape[:-1], self.output_dim)


def character_features(ids: Tensor, embedding: Tensor, convolutions: Iterable[Any], **settings: Any) -> Tensor:
    """Run elmo_fast.ops.char_cnn with the parameters of modules."""
    weights, biases = [], []
    for convolution in convolutions:
        weights.append(convolution.weight)
        biases.append(convolution.bias)
    return ops.char_cnn(ids, embedding, weights, biases, **settings)


def highway(x: Tensor, layers: Iterable[Any], projection: nn.Linear | None, **settings: Any) -> Tensor:
    """Run elmo_fast.ops.highway with the parameters of modules."""
    weights, biases = [], []
    for layer in layers:
        weights.append(layer.weight)
        biases.append(layer.bias)
    of_projection = (None, None) if projection is None else (projection.weight, projection.bias)
    return ops.highway(x, weights, biases, *of_projection, **settings)


def reset_linear(layer: Any) -> None:
    """Sample weights from N(0, 1/fan_in); the biases are 0."""
    layer.weight.normal_(0, math.sqrt(1 / layer.in_features))
    layer.bias.zero_()


def reset_convolution(convolution: nn.Conv1d, activation: str) -> None:
    """Sample filters as bilm-tf does: U(-.05, .05) under relu, N(0, 1/(k·E)) under tanh; biases 0."""
    if activation == "relu":
        convolution.weight.uniform_(-0.05, 0.05)
    else:
        convolution.weight.normal_(0, math.sqrt(1 / convolution.weight[0].numel()))
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
