"""An architecture as the configuration names it and as options.json does."""

import dataclasses
from typing import Any

from elmo_fast.checkpoints import CharCnnOptions, ElmoOptions, LstmOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import ModelConfig

# Fields of ModelConfig, and what they are called in the options' two parts.
_LSTM = ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip", "use_skip_connections")
_CHARACTERS = {
    "activation": "activation",
    "char_embedding_dim": "embedding_dim",
    "max_characters_per_token": "max_characters_per_token",
    "n_highway": "n_highway",
}


def options_of(model: ModelConfig, vocabulary_size: int, **training: Any) -> ElmoOptions:
    """The options.json of a model; `training` are its optional fields on how it was trained."""
    characters = None
    if model.input == "characters":
        characters = CharCnnOptions(
            filters=tuple((width, number) for width, number in model.filters),
            **{theirs: getattr(model, ours) for ours, theirs in _CHARACTERS.items()},
        )
    return ElmoOptions(
        lstm=LstmOptions(**{name: getattr(model, name) for name in _LSTM}),
        char_cnn=characters,
        dropout=model.dropout,
        n_tokens_vocab=vocabulary_size,
        **training,
    )


def architecture_of(options: ElmoOptions, given: ModelConfig, source: object) -> ModelConfig:
    """The architecture that a checkpoint's options name; fields that it has no use for are as given.

    Raises ElmoFastError for a model that cannot be trained here.
    """
    if options.peculiar is not None:
        raise ElmoFastError(f"{source}: this model cannot be pretrained further: {options.peculiar}")
    lstm = {"dropout": options.dropout or 0.0, **{name: getattr(options.lstm, name) for name in _LSTM}}
    if options.char_cnn is None:
        return dataclasses.replace(given, input="words", **lstm)
    return ModelConfig(
        filters=[list(pair) for pair in options.char_cnn.filters],
        **lstm,
        **{ours: getattr(options.char_cnn, theirs) for ours, theirs in _CHARACTERS.items()},
    )
