"""The architecture of a biLM, in the names of bilm-tf's options.json, validated once and immutable."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..files import write_json
from ..json_files import read_json
from ..manifest import check_written
from ._complaints import failures_named
from .option_fields import Section, complaints_of, flattened, made_of, option, optional, section_dict, shown
from .option_sections import CharCnnOptions, LexiconOptions, LstmOptions

CONFIG = "config.json"
OWN_FORMAT = "elmo_fast"  # the value of "format" in a config.json
# Losses that need the counts of the words beside their table.
COUNTED = ("negative_sampling", "hierarchical_softmax")
_SLOTS_OF_MARKERS = len("<bos>") + 2  # words are cut before they are compared with the markers


@dataclass(frozen=True)
class ElmoOptions(Section):
    """A biLM of characters (`char_cnn`), of word ids (`char_cnn=None`, `n_tokens_vocab` words) or of lexicons.

    Defaults are bilm-tf's for a missing key. The fields after `dropout` describe the training; they may be None. `loss`
    is not in bilm-tf: the loss that trained the softmax table, one of LOSSES. Nor are `lexicon` and `lstm.joined`: each
    layer reads both directions of the one below, without clips, and one projection with a bias follows the last.
    """

    lstm: LstmOptions
    char_cnn: CharCnnOptions | None = None
    lexicon: LexiconOptions | None = None
    bidirectional: bool = option("true", True)
    dropout: float = option("dropout", 0.1)
    n_tokens_vocab: int | None = optional("count")
    n_train_tokens: int | None = optional("whole")
    n_epochs: int | None = optional("whole")
    batch_size: int | None = optional("count")
    unroll_steps: int | None = optional("count")
    n_negative_samples_batch: int | None = optional("count")
    all_clip_norm_val: float | None = optional("positive")
    learning_rate: float | None = optional("positive")
    sample_softmax: bool | None = optional("flag")
    share_embedding_softmax: bool | None = optional("flag")
    loss: str | None = optional("loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lexicon is None:
            return
        if bool(self.lexicon.characters) != (self.char_cnn is not None):
            raise CheckpointError("lexicon.characters: wanted them where there is a char_cnn, and only there")
        if not self.lexicon.characters and not self.lexicon.words:
            raise CheckpointError("lexicon: wanted characters, words or both, found none")
        if self.char_cnn is not None and (slots := self.char_cnn.max_characters_per_token) < _SLOTS_OF_MARKERS:
            raise CheckpointError(
                f"char_cnn.max_characters_per_token: wanted {_SLOTS_OF_MARKERS} or more with a lexicon, found {slots}"
            )

    @property
    def reads_word_ids(self) -> bool:
        """Whether a word is its number in a vocabulary: no characters, and no lexicon."""
        return self.char_cnn is None and self.lexicon is None

    @property
    def n_character_rows(self) -> int:
        """Rows of the character embedding: one per byte, marker or entry of the lexicon, behind that of the padding."""
        return 262 if self.lexicon is None else len(self.lexicon.characters) + 1

    @property
    def n_features(self) -> int:
        """Width of what the encoder projects: the filters, the vector of a lexicon's word, or both."""
        filters = 0 if self.char_cnn is None else self.char_cnn.n_filters
        return filters + (0 if self.lexicon is None else self.lexicon.word_dim)

    @property
    def peculiar(self) -> str | None:
        """What of the model neither bilm-tf's format nor training here can express, or None."""
        if self.lexicon is not None:
            return "its characters and words are those of a lexicon, not bytes"
        return "its LSTM joins both directions in each layer" if self.lstm.joined else None

    @property
    def trained_by(self) -> str:
        """The name of the loss: `loss` or, if that is None, what bilm-tf's sample_softmax says."""
        return self.loss or ("full_softmax" if self.sample_softmax is False else "sampled_softmax")

    @property
    def softmax_rows(self) -> int | None:
        """Rows of the softmax table: V, one per word, or V - 1, one per inner node of a hierarchical softmax."""
        if self.n_tokens_vocab is None or self.trained_by != "hierarchical_softmax":
            return self.n_tokens_vocab
        return self.n_tokens_vocab - 1

    @classmethod
    def from_dict(cls, values: Any, source: str = "options") -> "ElmoOptions":
        """The options in a parsed options.json; a CheckpointError begins with `source`."""
        if not isinstance(values, dict):
            raise CheckpointError(f"{source}: wanted an object with the keys lstm and char_cnn, found {shown(values)}")
        top = {key: value for key, value in values.items() if key not in ("lstm", "char_cnn", "lexicon")}
        sections: dict[str, tuple[type, dict[str, Any]]] = {}
        complaints = []
        for name, section in (("lstm", LstmOptions), ("char_cnn", CharCnnOptions), ("lexicon", LexiconOptions)):
            found = values.get(name)
            if isinstance(found, dict):
                sections[name] = (section, flattened(found))
                complaints += complaints_of(section, sections[name][1], f"{name}.")
            elif found is not None or name == "lstm":
                complaints.append(f"{name}: wanted an object, found {'nothing' if found is None else shown(found)}")
            elif name == "char_cnn" and top.get("n_tokens_vocab") is None and values.get("lexicon") is None:
                complaints.append(
                    "char_cnn: wanted an object (or n_tokens_vocab, for a model of word ids), found nothing"
                )
        complaints += complaints_of(cls, flattened(top), "")
        if complaints:
            raise CheckpointError(f"{source}: {'; '.join(complaints)}")
        try:
            made = {name: made_of(section, found) for name, (section, found) in sections.items()}
            return made_of(cls, flattened(top), **made)
        except CheckpointError as error:
            raise CheckpointError(f"{source}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """bilm-tf's nested dictionary; from_dict reads it back to equal options."""
        sections = {"lstm": section_dict(self.lstm)}
        if self.char_cnn is not None:
            sections["char_cnn"] = section_dict(self.char_cnn)
        if self.lexicon is not None:
            sections["lexicon"] = section_dict(self.lexicon)
            sections.get("char_cnn", {}).pop("n_characters", None)  # a number of bytes
        return {**section_dict(self), **sections}

    def with_n_characters(self, n_characters: int) -> "ElmoOptions":
        """The same options with `n_characters` 261 (as bilm-tf needs while training) or 262 (when used)."""
        if self.char_cnn is None:
            return self
        return dataclasses.replace(self, char_cnn=dataclasses.replace(self.char_cnn, n_characters=n_characters))


def read_options(path: str | os.PathLike[str]) -> ElmoOptions:
    """The options in a bilm-tf options.json or our config.json.

    Raises: CheckpointError naming every wrong key, with what was wanted and found.
    """
    path = Path(path)
    values: Any = read_json(path, Any)
    if isinstance(values, dict) and values.get("format") == OWN_FORMAT:
        values = values.get("options")
        if path.name == CONFIG:
            check_written(path.parent, [CONFIG])
    return ElmoOptions.from_dict(values, source=str(path))


def write_options(path: str | os.PathLike[str], options: ElmoOptions) -> None:
    """Writes bilm-tf's options.json, complete or not at all."""
    with failures_named(path):
        write_json(path, options.to_dict(), indent=2)
