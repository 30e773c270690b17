"""The model that a new run starts from, in place of weights drawn at random."""

import dataclasses
import pathlib
from collections.abc import Callable

from torch import Tensor

from elmo_fast.checkpoints import ElmoOptions, bilm_part, load_checkpoint, model_folder
from elmo_fast.pretrain.architecture import architecture_of
from elmo_fast.pretrain.checkpoint import find_vocabulary_file
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.start.adapt_vocabulary import SOFTMAX, adapt_vocabulary
from elmo_fast.text import Vocabulary


@dataclasses.dataclass(frozen=True)
class Origin:
    """A pretrained model: where it lies, its weights, the vocabulary of its softmax."""

    folder: pathlib.Path
    weights: dict[str, Tensor]
    options: ElmoOptions
    vocabulary: Vocabulary

    def initialise(
        self, model: LanguageModel, vocabulary: Vocabulary, seed: int, report: Callable[[str], None]
    ) -> None:
        """Copies the weights into a model of the same architecture; words that both vocabularies have keep theirs.

        The rows of a hierarchical softmax are of its tree's nodes: they are kept where tree and words stay, else drawn.
        """
        was, now = self.options.trained_by, model.options.trained_by
        of_words = "hierarchical_softmax" not in (was, now)
        if not of_words and was == now and self.vocabulary.words == vocabulary.words:
            model.load(bilm_part(self.weights))
            report(f"init   from {self.folder}: all rows of the input and of the softmax's tree are kept, and the tree")
            return
        drawn = {name: tensor for name, tensor in model.checkpoint_state().items() if name.startswith(SOFTMAX)}
        given = {name: tensor for name, tensor in self.weights.items() if of_words or not name.startswith(SOFTMAX)}
        weights, told = adapt_vocabulary(
            given, self.vocabulary, vocabulary, seed, float(model.softmax_bias.detach()[0])
        )
        model.load({**drawn, **weights} if of_words else {**weights, **drawn})
        report(f"init   from {self.folder}: {told}")


def adopt_architecture(
    config: PretrainConfig, wanted: ModelConfig, folder: object, report: Callable[[str], None]
) -> None:
    """Makes `wanted`, the architecture of the model a run starts from, the configuration's, and says so."""
    differing = [name for name, value in dataclasses.asdict(wanted).items() if getattr(config.model, name) != value]
    if differing:
        report(
            f"init   the architecture is that of {folder}: {', '.join(differing)} of the configuration are set aside"
        )
    config.model = wanted


def load_origin(config: PretrainConfig, report: Callable[[str], None]) -> Origin | None:
    """The model that init_from names, or None; its architecture becomes the configuration's."""
    if config.run.init_from is None:
        return None
    folder = model_folder(config.run.init_from)
    weights, options = load_checkpoint(folder)
    adopt_architecture(config, architecture_of(options, config.model), folder, report)
    return Origin(folder, dict(weights), options, Vocabulary.read(find_vocabulary_file(folder)))
