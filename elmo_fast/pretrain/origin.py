"""The model that a new run starts from, in place of weights drawn at random."""

import dataclasses
import pathlib
from collections.abc import Callable

from torch import Tensor

from elmo_fast.checkpoints import ElmoOptions, load_checkpoint
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import newest_model, vocabulary_beside
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.init_from import adapted
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.text import Vocabulary


@dataclasses.dataclass(frozen=True)
class Origin:
    """A pretrained model: where it lies, its weights, the vocabulary of its softmax."""

    folder: pathlib.Path
    weights: dict[str, Tensor]
    vocabulary: Vocabulary

    def give(self, model: LanguageModel, vocabulary: Vocabulary, seed: int, report: Callable[[str], None]) -> None:
        """Copies the weights into a model of the same architecture; words that both vocabularies have keep theirs."""
        weights, told = adapted(self.weights, self.vocabulary, vocabulary, seed)
        model.load(weights)
        report(f"init   from {self.folder}: {told}")


def model_config(options: ElmoOptions) -> ModelConfig:
    """The architecture that a checkpoint's options name."""
    if options.char_cnn is None:
        raise ElmoFastError("init_from: wanted a model that reads characters; got one of word ids")
    lstm, characters = options.lstm, options.char_cnn
    return ModelConfig(
        filters=[list(pair) for pair in characters.filters],
        char_embedding_dim=characters.embedding_dim,
        max_characters_per_token=characters.max_characters_per_token,
        activation=characters.activation,
        n_highway=characters.n_highway,
        dim=lstm.dim,
        projection_dim=lstm.projection_dim,
        n_layers=lstm.n_layers,
        cell_clip=lstm.cell_clip,
        proj_clip=lstm.proj_clip,
        use_skip_connections=lstm.use_skip_connections,
        dropout=options.dropout or 0.0,
    )


def take_architecture(
    config: PretrainConfig, wanted: ModelConfig, folder: object, report: Callable[[str], None]
) -> None:
    """Makes `wanted`, the architecture of the model a run starts from, the configuration's, and says so."""
    differing = [name for name, value in dataclasses.asdict(wanted).items() if getattr(config.model, name) != value]
    if differing:
        report(
            f"init   the architecture is that of {folder}: {', '.join(differing)} of the configuration are set aside"
        )
    config.model = wanted


def origin_of(config: PretrainConfig, report: Callable[[str], None]) -> Origin | None:
    """The model that init_from names, or None; its architecture becomes the configuration's."""
    if config.run.init_from is None:
        return None
    folder = newest_model(config.run.init_from)
    weights, options = load_checkpoint(folder)
    take_architecture(config, model_config(options), folder, report)
    return Origin(folder, dict(weights), Vocabulary.read(vocabulary_beside(folder)))
