"""The network that is pretrained: a biLM under one table of the loss, which both directions share; how it is made."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

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
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import BiLM, CharacterEncoder
from elmo_fast.modules.character_encoder import WordCache
from elmo_fast.modules.elmo_lstm import Drop, LayerStates
from elmo_fast.modules.losses import loss_of
from elmo_fast.op_choices import DEFAULT_LOSS, LOSS_KINDS, Backend, InferencePrecision, trained_precision
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.fill import SentencePredictions
from elmo_fast.text import Vocabulary

# The loss's tensors, and their names in the model's state_dict and in the optimizer's file.
_LOSS_NAMES = {"loss.softmax_w": "softmax_weight", "loss.softmax_b": "softmax_bias", "loss.counts": "counts"}


class LanguageModel(SentencePredictions):
    """A bidirectional language model: a BiLM, and a softmax over V words that both directions share.

    Weights are sampled as bilm-tf samples them (the softmax from N(0, 1/D), its bias 0), by torch's global generator.

    options: the architecture, with n_tokens_vocab = V, the loss (`trained_by`) and how many words it samples
    (`n_negative_samples_batch`); counts: how often each word is a target, [V] (`target_counts`), for the losses
    that need it; negatives: of negative sampling, as how many words of noise the samples count (None: all); precision:
    to what operands of matrix products are rounded ("int8": those of the biLM, to evaluate it; the loss takes float32);
    backend: as the ops' argument; train_input: whether the encoder is trained; train_bilm: whether anything but the
    loss is.

    loss: the loss, which owns the table; vocabulary: the V words, where the model was loaded with its vocab.txt.

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
        self.register_state_dict_post_hook(_rename_saved)
        self.register_load_state_dict_pre_hook(_rename_loaded)

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

    @property
    def vocabulary_size(self) -> int:
        """V, the number of words that are predicted."""
        return self.options.n_tokens_vocab or 0

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
        vocabulary.check(self.vocabulary_size, self.options.vocabulary_sha256, name)

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


def _rename_saved(model: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    for name, saved in _LOSS_NAMES.items():
        if prefix + name in state:
            state[prefix + saved] = state.pop(prefix + name)


def _rename_loaded(model: nn.Module, state: dict[str, Any], prefix: str, *more: Any) -> None:
    for name, saved in _LOSS_NAMES.items():
        if prefix + saved in state:
            state[prefix + name] = state.pop(prefix + saved)


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
        return corpus.types.characters(options.char_cnn.max_characters_per_token, device=device).ids
    size, unknown = len(corpus.vocabulary), corpus.vocabulary.unk

    def word_ids(types: Tensor) -> Tensor:
        return types.masked_fill(types >= size, unknown) + 1

    return word_ids
