"""The network that is pretrained: a biLM under one table of the loss, which both directions share.

How it is created, and what it says of a sentence: words for a gap, the probability of each token, sentences of its own.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmo_fast.checkpoints import (
    VOCABULARY,
    CharCnnOptions,
    ElmoOptions,
    LstmOptions,
    file_beside,
    load_checkpoint,
    pretrained_folder,
    save_folder,
)
from elmo_fast.checkpoints.state import SOFTMAX_BIAS, SOFTMAX_COUNTS, SOFTMAX_WEIGHT
from elmo_fast.corpus import Corpus
from elmo_fast.corpus.streams import DistinctWords
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.character_encoder import CharacterEncoder, WordCache
from elmo_fast.modules.elmo_lstm import Drop, LayerStates
from elmo_fast.modules.losses import loss_of
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.op_choices import DEFAULT_LOSS, LOSS_KINDS, Backend, InferencePrecision, trained_precision
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.text import Vocabulary, checked_sentences
from elmo_fast.text.vocabulary import MARKERS, UNK_WORD

GAP = "___"
"""a token that stands for a word to be found"""
LONGEST = 100
"""tokens of a sentence that the model writes and does not end"""


class Filled(NamedTuple):
    """A word for a gap."""

    word: str
    """one of the vocabulary"""
    probability: float
    """of all words of the vocabulary, 0 to 1"""


class Score(NamedTuple):
    """How likely a token is where it stands."""

    token: str
    """as it was given; the last one, </S>, stands for the sentence's end, and backward for its beginning"""
    forward: float
    """ln of its probability after the tokens before it; nats"""
    backward: float
    """ln of its probability before the tokens after it; nats"""


# The loss's parameters, and their names in the optimizer's file.
_LOSS_NAMES = {"loss.softmax_w": "softmax_weight", "loss.softmax_b": "softmax_bias"}


class LanguageModel(nn.Module):
    """A bidirectional language model: a BiLM, and a softmax over V words that both directions share.

    Weights are sampled as bilm-tf samples them (the softmax from N(0, 1/D), its bias 0), by torch's global generator.

    options: the architecture, with n_tokens_vocab = V, the loss (`trained_by`) and how many words it samples
    (`n_negative_samples_batch`); counts: how often each word is a target, [V] (`target_counts`), for the losses
    that need it; negatives: of negative sampling, as how many words of noise the samples count (None: all); precision:
    to what operands of matrix products are rounded ("int8": those of the biLM, to evaluate it; the loss takes float32);
    backend: as the ops' argument; train_input: whether the encoder is trained; train_bilm: whether anything but the
    loss is.

    loss: the loss, which owns the table; vocabulary: the V words, where the model was loaded with its vocab.txt. Where
    it is None, `fill`, `score` and `sample` raise ElmoFastError.

    Source: Peters et al. 2018, section 3.1; bilm-tf, bilm/training.py.
    """

    def __init__(
        self,
        options: ElmoOptions,
        *,
        counts: Tensor | None = None,
        negatives: float | None = None,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
        train_input: bool = True,
        train_bilm: bool = True,
    ) -> None:
        super().__init__()
        if options.n_tokens_vocab is None:
            raise ElmoFastError("options must name n_tokens_vocab, the number of words to predict; got none")
        if options.why_not_trainable is not None:
            raise ElmoFastError(
                f"options must be of a model that reads bytes or word ids; got another: {options.why_not_trainable}"
            )
        self.options, self.precision, self.backend = options, precision, backend
        bilm = BiLM(options, requires_grad=train_bilm, precision=precision, backend=backend)  # sampled before the loss
        self.loss = loss_of(
            options, counts=counts, negatives=negatives, precision=trained_precision(precision), backend=backend
        )
        self.bilm = bilm
        self.bilm.encoder.requires_grad_(train_input and train_bilm)
        self.vocabulary: Vocabulary | None = None

    @property
    def softmax_weight(self) -> Tensor:
        """The table of the loss, [rows, D]."""
        return self.loss.table()[0]

    @property
    def softmax_bias(self) -> Tensor:
        """The biases of the loss, [rows]."""
        return self.loss.table()[1]

    @property
    def counts(self) -> Tensor | None:
        """How often each word is a target, [V] int64; None where the loss does not need it."""
        return getattr(self.loss, "counts", None)

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters that are trained, with their names: all but a frozen input's."""
        return [(_LOSS_NAMES.get(name, name), each) for name, each in self.named_parameters() if each.requires_grad]

    @classmethod
    def from_checkpoint(
        cls,
        options: ElmoOptions,
        state: Mapping[str, Tensor],
        *,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> "LanguageModel":
        """Return a model with the weights of a checkpoint's state.

        Raises ElmoFastError when it holds no softmax (the published ELMo files do not).
        """
        if SOFTMAX_WEIGHT not in state or SOFTMAX_BIAS not in state:
            raise ElmoFastError(
                "this checkpoint has no softmax weights, so it cannot say how likely a word is; "
                "give the folder of a model trained with `elmo-fast pretrain`, or train a softmax for this one: "
                "`elmo-fast pretrain --init_from MODEL --train_bilm false`"
            )
        if options.n_tokens_vocab is None:
            words = options.loss_kind.words(len(state[SOFTMAX_BIAS]))
            options = dataclasses.replace(options, n_tokens_vocab=words)
        model = cls(options, counts=state.get(SOFTMAX_COUNTS), precision=precision, backend=backend)
        model.load(state)
        return model

    @classmethod
    def from_pretrained(
        cls, model: str | os.PathLike[str], *, precision: InferencePrecision = "float32", backend: Backend = "auto"
    ) -> "LanguageModel":
        """Return the language model of a model's or a run's folder, or of a name on the hub ("user/name@revision").

        Raises ElmoFastError when it is not there, damaged or has no softmax.
        """
        folder = pretrained_folder(model)
        state, options = load_checkpoint(folder)
        loaded = cls.from_checkpoint(options, state, precision=precision, backend=backend)
        words = file_beside(folder)
        loaded.vocabulary = None if words is None else Vocabulary.read(words)
        return loaded

    def save_pretrained(self, folder: str | os.PathLike[str], vocabulary: Vocabulary | None = None) -> None:
        """Write config.json and model.safetensors, which every command read, and vocab.txt where one is given.

        vocabulary: the V words of the softmax, in the order of its rows; evaluation wants it.
        Raises ElmoFastError when the vocabulary is another one, or the disk does not take the files.
        """
        options = self.options
        if vocabulary is not None:
            self.check_vocabulary(vocabulary)
            options = dataclasses.replace(options, vocabulary_sha256=vocabulary.digest)
        save_folder(folder, self.checkpoint_state(), options)
        if vocabulary is not None:
            vocabulary.write(os.path.join(folder, VOCABULARY))

    def check_vocabulary(self, vocabulary: Vocabulary, name: str = "vocabulary") -> None:
        """Raise ElmoFastError unless the vocabulary is the softmax's; name: of the argument, for the message."""
        vocabulary.check(self.options.n_tokens_vocab or 0, self.options.vocabulary_sha256, name)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a checkpoint's state into the parameters, all of them."""
        own = self.bilm.state_dict().keys()
        self.bilm.load_state_dict({name: tensor for name, tensor in state.items() if name in own})
        with torch.no_grad():
            self.softmax_weight.copy_(state[SOFTMAX_WEIGHT])
            self.softmax_bias.copy_(state[SOFTMAX_BIAS])
            if self.counts is not None:
                self.counts.copy_(state[SOFTMAX_COUNTS])

    def checkpoint_state(self) -> dict[str, Tensor]:
        """All weights under the names of `elmo_fast.checkpoints`."""
        softmax = {SOFTMAX_WEIGHT: self.softmax_weight.detach(), SOFTMAX_BIAS: self.softmax_bias.detach()}
        if self.counts is not None:
            softmax[SOFTMAX_COUNTS] = self.counts.float()
        return {**self.bilm.checkpoint_state(), **softmax}

    def forward(
        self,
        types: Tensor,
        characters: Callable[[Tensor], Tensor],
        state: LayerStates | None,
        lengths: Tensor | None = None,
        drop: Drop | None = None,
        distinct: DistinctWords | None = None,
        cache: WordCache | None = None,
    ) -> tuple[Tensor, LayerStates]:
        """Run the biLM over two streams of words.

        Returns hidden states [2, B, T, D], which the softmax sees, with dropout while training; and the state after,
        detached.

        types: numbers of words, [2, B, T] int64, each direction in its reading order; characters: spells them, [U] ->
        character ids [U, C] (of a model of word ids: -> ids + 1, `make_input_reader`); state: after the windows before,
        None for zeros; lengths: positions of each row that are text, [B] int64, None: all; drop: as
        `BiLM.run_streams`'; distinct: the distinct words of types, None: the encoder finds them; cache:
        vectors of words of earlier batches, where the weights do not change.
        """
        encoder = self.bilm.encoder
        if not isinstance(encoder, CharacterEncoder):
            words = encoder.encode(characters(types))
        elif distinct is None:
            words = encoder.encode(types, characters, cache)
        else:
            vectors = encoder.encode_distinct(characters(distinct.words), *distinct[1:])
            words = vectors.view(*types.shape, -1)
        return self.bilm.run_streams(words, state, lengths, drop)

    def fill(self, tokens: Sequence[str], *, topn: int = 5) -> list[list[Filled]]:
        """Return the likeliest words for each gap, "___", of a sentence, the likeliest first.

            p(w) ∝ p_forward(w | tokens before) · p_backward(w | tokens after)

        At the end of the sentence p_forward alone: the next word. To one gap, the others are <UNK>.

        topn: how many words for a gap. Raises ElmoFastError where there is no gap.
        """
        check_counts(topn=topn)
        gaps = [place for place, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise ElmoFastError(f'tokens must have a gap, "{GAP}", as in ["The", "{GAP}", "of", "the", "river"]')
        with self._reading() as (vocabulary, read):
            before, after = read([UNK_WORD if token == GAP else token for token in tokens])
            scores = self.loss.log_probabilities(before[gaps])
            inner = [row for row, place in enumerate(gaps) if place < len(tokens) - 1]
            if inner:
                scores[inner] += self.loss.log_probabilities(after[[gaps[row] + 1 for row in inner]])
            scores[:, [vocabulary.bos, vocabulary.eos, vocabulary.unk]] = -torch.inf
            best = scores.softmax(1).topk(min(topn, scores.shape[1] - len(MARKERS)), dim=1)
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [[Filled(vocabulary.words[i], p) for p, i in zip(*row, strict=True)] for row in rows]

    def score(self, tokens: Sequence[str]) -> list[Score]:
        """Return ln p of each token of a sentence in both directions, and of its ends.

        A token outside the vocabulary is as likely as <UNK>.
        """
        with self._reading() as (vocabulary, read):
            before, after = read(tokens)
            ids = vocabulary.ids(tokens).tolist()
            forward, backward = (
                (-self.loss.exact_losses(hidden, torch.tensor(wanted, device=hidden.device))).tolist()
                for hidden, wanted in ((before, [*ids, vocabulary.eos]), (after, [vocabulary.bos, *ids]))
            )
        names = [*tokens, vocabulary.words[vocabulary.eos]]
        return [Score(*row) for row in zip(names, forward, [*backward[1:], backward[0]], strict=True)]

    def sample(self, tokens: Sequence[str] = (), *, generator: torch.Generator | None = None) -> list[str]:
        """Return a sentence that begins with `tokens` and that the forward direction goes on with, to its end.

        generator: of random numbers, on the CPU; None: torch's. <UNK> is never drawn.
        """
        words = list(tokens)
        with self._reading() as (vocabulary, read):
            while len(words) < LONGEST:
                before, _ = read([*words, UNK_WORD])
                scores = self.loss.log_probabilities(before[len(words)][None])[0].double().cpu()
                scores[[vocabulary.bos, vocabulary.unk]] = -torch.inf
                word = int(torch.multinomial(scores.softmax(0), 1, generator=generator))
                if word == vocabulary.eos:
                    break
                words.append(vocabulary.words[word])
        return words

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tuple[Vocabulary, Callable[[Sequence[str]], tuple[Tensor, Tensor]]]]:
        """Yield the vocabulary, and the function from T tokens to what predicts them, two tensors [T + 1, D].

        Row t of the first predicts token t after those before it, its last row the end; row t + 1 of the second
        predicts token t before those after it, its first row the beginning.
        """
        if self.vocabulary is None:
            raise ElmoFastError(
                "the words of this model's softmax are unknown: keep vocab.txt beside its files, or set "
                "model.vocabulary = Vocabulary.read(FILE)"
            )
        self.check_vocabulary(self.vocabulary)
        encoder, training = self.bilm.encoder, self.training
        if isinstance(encoder, WordEncoder):
            encoder.vocabulary = self.vocabulary

        def read(tokens: Sequence[str]) -> tuple[Tensor, Tensor]:
            ids = self.bilm.batch_to_ids(list(checked_sentences([tokens], "tokens")))
            top = self.bilm(ids.to(next(self.parameters()).device), stateful=False)["activations"][-1][0]
            forward, backward = top.chunk(2, dim=1)
            return forward[:-1], backward[1:]

        self.eval()
        try:
            with torch.no_grad():
                yield self.vocabulary, read
        finally:
            self.train(training)


# Fields that ModelConfig shares with the options of the LSTM, and those that the options of characters name otherwise.
_LSTM = [each.name for each in dataclasses.fields(LstmOptions) if hasattr(ModelConfig, each.name)]
_CHARACTERS = {
    "activation": "activation",
    "char_embedding_dim": "embedding_dim",
    "max_characters_per_token": "max_characters_per_token",
    "n_highway": "n_highway",
}


def options_of(model: ModelConfig, vocabulary_size: int, **training: Any) -> ElmoOptions:
    """Return the options.json of a model; `training` are its optional fields on how it was trained."""
    characters = None
    if model.input == "characters":
        characters = CharCnnOptions(
            filters=tuple((width, number) for width, number in model.filters),
            **{option: getattr(model, field) for field, option in _CHARACTERS.items()},
        )
    return ElmoOptions(
        lstm=LstmOptions(**{name: getattr(model, name) for name in _LSTM}),
        char_cnn=characters,
        dropout=model.dropout,
        n_tokens_vocab=vocabulary_size,
        **training,
    )


def architecture_of(options: ElmoOptions, default: ModelConfig, source: object) -> ModelConfig:
    """Return the architecture that a checkpoint's options name; fields that it has no use for are as given.

    Raises ElmoFastError for a model that cannot be trained here.
    """
    if options.why_not_trainable is not None:
        raise ElmoFastError(f"{source}: this model cannot be pretrained further: {options.why_not_trainable}")
    lstm = {"dropout": options.dropout or 0.0, **{name: getattr(options.lstm, name) for name in _LSTM}}
    if options.char_cnn is None:
        return dataclasses.replace(default, input="words", **lstm)
    return ModelConfig(
        filters=[list(pair) for pair in options.char_cnn.filters],
        **lstm,
        **{field: getattr(options.char_cnn, option) for field, option in _CHARACTERS.items()},
    )


# Fields of options.json on the training.
_TRAINING_OPTIONS = ("n_train_tokens", "n_epochs", "batch_size", "unroll_steps", "n_negative_samples_batch")


def make_language_model(
    config: PretrainConfig, vocabulary_size: int, device: torch.device | str = "cpu", counts: Tensor | None = None
) -> LanguageModel:
    """Return a model with weights sampled from the configuration's seed; its options say how it is trained.

    counts: how often each word is a target, [V], for the losses that need it.
    """
    optimizer = config.optimizer
    training: dict[str, Any] = {name: getattr(optimizer, name) for name in _TRAINING_OPTIONS}
    training |= {"all_clip_norm_val": optimizer.all_clip_norm_val, "learning_rate": optimizer.rate}
    if optimizer.loss != DEFAULT_LOSS:
        training["loss"] = optimizer.loss
    if config.data.tokenizer != "whitespace":
        training["tokenizer"] = config.data.tokenizer
    training["sample_softmax"] = LOSS_KINDS[optimizer.loss].samples
    options = options_of(config.model, vocabulary_size, **training)
    torch.manual_seed(config.run.seed)
    frozen = config.model.input == "vectors" and not config.model.train_vectors
    with torch.device("cpu"):  # equal weights on every device
        model = LanguageModel(
            options,
            counts=counts,
            negatives=optimizer.negatives,
            precision="float32" if config.run.precision == "tf32" else config.run.precision,
            backend=config.run.backend,
            train_input=not frozen,
            train_bilm=config.run.train_bilm,
        )
    return model.to(device)


def make_input_reader(options: ElmoOptions, corpus: Corpus, device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """From numbers of the corpus' words to what the model's encoder reads: character ids, or word ids + 1.

    Of a model of word ids, words outside the vocabulary are read as <UNK>.
    """
    if options.char_cnn is not None:
        return corpus.types.characters(options.char_cnn.max_characters_per_token, device)
    size, unknown = len(corpus.vocabulary), corpus.vocabulary.unk
    return lambda types: types.masked_fill(types >= size, unknown) + 1
