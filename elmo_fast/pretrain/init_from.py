"""The weights that a new run starts from: those of a model, adapted to another vocabulary, or vectors of words."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from elmo_fast.checkpoints import (
    ElmoOptions,
    State,
    bilm_part,
    file_beside,
    load_checkpoint,
    model_files,
    pretrained_folder,
    read_adagrad_sums,
)
from elmo_fast.checkpoints.safetensors_folder import warn_if_rounded
from elmo_fast.checkpoints.state import SOFTMAX_BIAS, SOFTMAX_COUNTS, SOFTMAX_WEIGHT, WORD_EMBEDDING
from elmo_fast.checkpoints.tensor_bundle import INDEX
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel, architecture_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.text import Vocabulary

# Tables of a row per word, and how many rows precede the words: the padding's.
ROWS_OF_WORDS = {SOFTMAX_BIAS: 0, SOFTMAX_WEIGHT: 0, WORD_EMBEDDING: 1}


def move_rows(tables: Mapping[str, Tensor], fresh: State, old: Vocabulary | None, new: Vocabulary) -> int:
    """Copy the rows of words in both vocabularies into the tables of `fresh`; return the number of words.

    `load_origin` has seen to it that the old vocabulary is that of the tables, where there are any.
    """
    shared = fresh.keys() & tables.keys()
    if not shared:
        return 0
    assert old is not None
    pairs = [(i, old.id(word)) for i, word in enumerate(new.words) if word in old]
    here, there = torch.tensor(pairs, dtype=torch.int64, device="cpu").unbind(1)
    for name in shared:
        extra = ROWS_OF_WORDS[name]
        fresh[name][here + extra] = tables[name].cpu()[there + extra].to(fresh[name].device)
    return len(pairs)


@dataclasses.dataclass(frozen=True)
class Origin:
    """A pretrained model: where it lies, its weights, the vocabulary of its softmax, the sums of its AdaGrad.

    architecture: as a configuration; vocabulary: None where it has no softmax and none was found; sums: in the names
    of the weights, of bilm-tf's checkpoints, else empty.
    """

    folder: pathlib.Path
    weights: dict[str, Tensor]
    options: ElmoOptions
    architecture: ModelConfig
    vocabulary: Vocabulary | None
    sums: State

    def initialise(
        self, model: LanguageModel, vocabulary: Vocabulary, seed: int, report: Callable[[str], None]
    ) -> None:
        """Copy the weights into a model of the same architecture; words that both vocabularies have keep theirs.

        Rows of new words are sampled as in a new model, from N(0, 1/D) or, of word vectors, as WordEncoder samples
        them; a row depends on the seed and its id alone. The counts of a loss that has any belong to the old text and
        are left out. A hierarchical softmax has rows of its tree's nodes: they are kept where tree and words stay, else
        sampled.
        """
        was, now, words = self.options.loss_kind, model.loss.kind, len(vocabulary)
        same = self.vocabulary is not None and self.vocabulary.words == vocabulary.words
        if was.table_is_tree and was == now and same:
            model.load(bilm_part(self.weights))
            report(f"init   from {self.folder}: all rows of the input and of the softmax's tree are kept, and the tree")
            return
        of_words = not (was.table_is_tree or now.table_is_tree)
        left_out = SOFTMAX_COUNTS if of_words else "softmax."
        old = {name: tensor for name, tensor in bilm_part(self.weights).items() if not name.startswith(left_out)}
        generator, width = torch.Generator().manual_seed(seed), model.softmax_weight.shape[1]
        rows = torch.empty(words, width, device="cpu").normal_(0, math.sqrt(1 / width), generator=generator)
        new = {SOFTMAX_WEIGHT: rows, SOFTMAX_BIAS: torch.full_like(rows[:, 0], float(model.softmax_bias.detach()[0]))}
        new = new if of_words else {}
        if isinstance(model.bilm.encoder, WordEncoder):
            bound = math.sqrt(6 / (words + (vectors := model.bilm.encoder.output_dim)))
            table = torch.empty(words + 1, vectors, device="cpu").uniform_(-bound, bound, generator=generator)
            table[0] = 0  # the padding
            new[WORD_EMBEDDING] = table
        before, known = len(old.get(SOFTMAX_BIAS, ())), move_rows(old, new, self.vocabulary, vocabulary)
        known = known if before else 0  # else the input's table alone has rows of words
        model.load(model.checkpoint_state() | old | new)
        report(
            f"init   from {self.folder}: {known:,} of {words:,} words ({known / words:.1%}) keep their row of the "
            f"softmax, {words - known:,} are new, {before - known:,} rows are dropped"
        )

    @torch.no_grad()
    def initialise_optimizer(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        vocabulary: Vocabulary,
        report: Callable[[str], None],
    ) -> None:
        """Copy AdaGrad's sums, if the checkpoint has any; words that are new start as in a new run."""
        if not self.sums:
            return
        if not isinstance(optimizer, AdaGrad):
            report(f"init   AdaGrad's sums of {self.folder} are left out: the optimiser is another")
            return
        for name, parameter in model.trained():
            name = name.removeprefix("bilm.").replace("softmax_", "softmax.")  # as in a state
            own = optimizer.state[parameter]["sum"]
            if name not in ROWS_OF_WORDS:
                own.copy_(self.sums[name])
            elif name == WORD_EMBEDDING or not model.loss.kind.table_is_tree:  # whose rows are of nodes
                move_rows({name: self.sums[name]}, {name: own}, self.vocabulary, vocabulary)
        report(f"init   AdaGrad's sums of {self.folder} are kept")


def load_origin(config: PretrainConfig) -> Origin | None:
    """Return the model that init_from names, or None."""
    if config.run.init_from is None:
        return None
    path = pathlib.Path(config.run.init_from)
    source = pretrained_folder(config.run.init_from, from_hub=False)
    folder = source if path.is_dir() else path  # what messages name: no archive's temporary folder
    weights, options = load_checkpoint(source, prefix=config.run.prefix)
    if config.run.train_bilm:
        warn_if_rounded(source)
    architecture = architecture_of(options, config.model, folder)
    weight_file = model_files(source)[1]
    sums: State = read_adagrad_sums(weight_file, options) if weight_file.suffix == INDEX else {}
    vocabulary = _vocabulary_of(source, weights, options, config.data.vocab_file)
    return Origin(folder, dict(weights), options, architecture, vocabulary, sums)


def _vocabulary_of(
    folder: pathlib.Path, weights: State, options: ElmoOptions, vocab_file: str | None
) -> Vocabulary | None:
    """Return the model's vocab.txt; without it, as in runs of bilm-tf, vocab_file, which must be of as many words."""
    rows = [len(weights[name]) - extra for name, extra in ROWS_OF_WORDS.items() if name in weights]
    file = file_beside(folder) or (vocab_file if rows else None)
    if file is None and not rows:
        return None
    if file is None:
        raise ElmoFastError(
            f"init_from: the vocabulary of {rows[0]:,} words that the model was trained with is missing; put it into "
            "the model's folder as vocab.txt"
        )
    vocabulary = Vocabulary.read(file)
    if rows:
        vocabulary.check(options.n_tokens_vocab or rows[0], options.vocabulary_sha256, f"init_from: {file}")
    return vocabulary


@torch.no_grad()
def load_word_vectors(
    model: LanguageModel, vocabulary: Vocabulary, path: str, *, seed: int, report: Callable[[str], None]
) -> None:
    """Make the vectors of the file `path` (vectors_file) the table of a model of word ids.

    Words that the file lacks are sampled from N(0, s²), s² the variance of its numbers, and counted in the report.

    Raises ElmoFastError when the file's vectors are not projection_dim wide, or it has none of the words.
    """
    from elmo_fast.embed.word_vectors import load_vectors

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
    here, there = torch.tensor(pairs, device="cpu").unbind(1)
    rows = torch.from_numpy(vectors.matrix)[there]
    spread = float(rows.double().std(correction=0))
    generator = torch.Generator().manual_seed(seed)
    table = torch.empty(len(vocabulary) + 1, width, device="cpu").normal_(0, spread, generator=generator)
    table[0], table[here] = 0, rows
    encoder.weight.copy_(table)
    report(
        f"input  {len(pairs):,} of {len(vocabulary):,} words have a vector in {path}; {len(vocabulary) - len(pairs):,} "
        f"have none and are sampled from N(0, {spread:.3g}²); "
        + ("all are trained" if encoder.weight.requires_grad else "none is trained")
    )
