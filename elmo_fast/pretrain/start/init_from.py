"""The model that a new run starts from, in place of random weights."""

import dataclasses
import pathlib
from collections.abc import Callable

import torch
from torch import Tensor

from elmo_fast.checkpoints import (
    ElmoOptions,
    State,
    bilm_part,
    file_beside,
    load_checkpoint,
    model_files,
    model_folder,
    read_adagrad_sums,
)
from elmo_fast.checkpoints.safetensors_folder import warn_if_rounded
from elmo_fast.checkpoints.state import SOFTMAX_BIAS, SOFTMAX_WEIGHT
from elmo_fast.checkpoints.tensor_bundle import INDEX
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import WordEncoder
from elmo_fast.pretrain.checkpoint import load_optimizer
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel, architecture_of
from elmo_fast.pretrain.start.adapted_vocabulary import (
    ROWS_OF_WORDS,
    adapt_sums,
    adapt_vocabulary,
    check_vocabulary,
)
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.text import Vocabulary

# The loss's parameters in the optimizer's file, and in a state.
_STATE_NAMES = {"softmax_weight": SOFTMAX_WEIGHT, "softmax_bias": SOFTMAX_BIAS}


@dataclasses.dataclass(frozen=True)
class Origin:
    """A pretrained model: where it lies, its weights, the vocabulary of its softmax, the sums of its AdaGrad.

    vocabulary: None where it has no softmax and none was found; sums: in the names of the weights, of bilm-tf's
    checkpoints, else empty.
    """

    folder: pathlib.Path
    weights: dict[str, Tensor]
    options: ElmoOptions
    vocabulary: Vocabulary | None
    sums: State

    def initialise(
        self, model: LanguageModel, vocabulary: Vocabulary, seed: int, report: Callable[[str], None]
    ) -> None:
        """Copies the weights into a model of the same architecture; words that both vocabularies have keep theirs.

        The rows of a hierarchical softmax are of its tree's nodes: they are kept where tree and words stay, else drawn.
        """
        was, now = self.options.trained_by, model.options.trained_by
        of_words = "hierarchical_softmax" not in (was, now)
        known = self.vocabulary is not None and self.vocabulary.words == vocabulary.words
        if not of_words and was == now and known:
            model.load(bilm_part(self.weights))
            report(f"init   from {self.folder}: all rows of the input and of the softmax's tree are kept, and the tree")
            return
        drawn = {name: tensor for name, tensor in model.checkpoint_state().items() if name.startswith("softmax.")}
        given = {name: tensor for name, tensor in self.weights.items() if of_words or not name.startswith("softmax.")}
        weights, told = adapt_vocabulary(
            given, self.vocabulary, vocabulary, seed, float(model.softmax_bias.detach()[0])
        )
        model.load({**drawn, **weights} if of_words else {**weights, **drawn})
        report(f"init   from {self.folder}: {told}")

    def initialise_optimizer(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        vocabulary: Vocabulary,
        report: Callable[[str], None],
    ) -> None:
        """Loads AdaGrad's sums, if the checkpoint has any; words that are new start as in a new run."""
        if not self.sums:
            return
        if not isinstance(optimizer, AdaGrad):
            report(f"init   AdaGrad's sums of {self.folder} are left out: the optimiser is another")
            return
        initial = optimizer.defaults["initial_accumulator_value"]
        sums = adapt_sums(self.sums, self.vocabulary, vocabulary, initial)
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.trained():
            found = sums[_STATE_NAMES.get(name, name.removeprefix("bilm."))]
            if name in _STATE_NAMES and found.shape != parameter.shape:  # the nodes of a hierarchical softmax
                found = torch.full_like(parameter, initial, device="cpu")
            tensors |= {f"sum/{name}": found, f"step/{name}": torch.zeros(())}
        load_optimizer(model, optimizer, tensors)
        report(f"init   AdaGrad's sums of {self.folder} are kept")


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
    given = pathlib.Path(config.run.init_from)
    place = model_folder(given)
    folder = place if given.is_dir() else given  # what messages name: no archive's temporary folder
    weights, options = load_checkpoint(place, prefix=config.run.prefix)
    warn_if_rounded(place)
    adopt_architecture(config, architecture_of(options, config.model, folder), folder, report)
    weight_file = model_files(place)[1]
    sums: State = {}
    if weight_file.suffix == INDEX:
        sums = read_adagrad_sums(weight_file, options)
    elif weight_file.suffix == ".hdf5" and (hidden := sorted(place.glob(f"*{INDEX}"))):
        report(
            f"init   the weights are those of {weight_file}; {hidden[-1].name} beside it, which may hold AdaGrad's "
            "sums, is not read: move the HDF5 file to another folder to take weights and sums from the checkpoint"
        )
    return Origin(folder, dict(weights), options, _vocabulary_of(place, weights, options, config), sums)


def _vocabulary_of(
    folder: pathlib.Path, weights: State, options: ElmoOptions, config: PretrainConfig
) -> Vocabulary | None:
    """vocab.txt beside the model; without it, as in runs of bilm-tf, vocab_file, which must have as many words."""
    if (found := file_beside(folder)) is not None:
        return Vocabulary.read(found)
    rows = [len(weights[name]) - extra for name, extra in ROWS_OF_WORDS.items() if name in weights]
    if not rows:
        return None
    given = config.data.vocab_file
    return check_vocabulary(None if given is None else Vocabulary.read(given), options.n_tokens_vocab or rows[0])


@torch.no_grad()
def load_word_vectors(
    model: LanguageModel, vocabulary: Vocabulary, path: str, *, seed: int, report: Callable[[str], None]
) -> None:
    """Makes a file's vectors the table of a model of word ids.

    Words that the file lacks are drawn from N(0, s²), s² the variance of the numbers found, and counted in the report.

    Raises ElmoFastError when the file's vectors are not projection_dim wide, or it has none of the words.
    """
    from elmo_fast.static.vectors import load_vectors

    encoder = model.bilm.encoder
    assert isinstance(encoder, WordEncoder)
    vectors = load_vectors(path)
    width = vectors.matrix.shape[1]
    if width != encoder.output_dim:
        raise ElmoFastError(
            f"vectors_file {path}: wanted vectors of projection_dim={encoder.output_dim} numbers, found {width}; give "
            f"projection_dim {width}, or vectors of another width"
        )
    pairs = [(row, vectors.index[word]) for row, word in enumerate(vocabulary.words, 1) if word in vectors.index]
    if not pairs:
        raise ElmoFastError(
            f"vectors_file {path}: wanted vectors of the vocabulary's {len(vocabulary):,} words, found none; give a "
            "file of the same language and spelling"
        )
    here, there = torch.tensor(pairs).unbind(1)
    found = torch.from_numpy(vectors.matrix)[there]
    spread = float(found.double().std(correction=0))
    generator = torch.Generator().manual_seed(seed)
    table = torch.empty(len(vocabulary) + 1, width).normal_(0, spread, generator=generator)
    table[0], table[here] = 0, found
    encoder.weight.copy_(table)
    report(
        f"input  {len(pairs):,} of {len(vocabulary):,} words have a vector in {path}; {len(vocabulary) - len(pairs):,} "
        f"have none and are drawn from N(0, {spread:.3g}²); "
        + ("all are trained" if encoder.weight.requires_grad else "none is trained")
    )
