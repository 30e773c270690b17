"""The architecture of a biLM, in the names of bilm-tf's options.json, validated once and immutable."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._io.atomic_file import write_json
from .._io.atomic_folder import read_folder
from .._io.fields import check_fields, read_json, typed
from ..errors import CheckpointError, refuse, write_failures_named
from ..op_choices import BILM_TF_LOSSES, LOSS_KINDS, Activation, Loss, LossKind, Tokenizer

CONFIG = "config.json"
OWN_FORMAT = "elmo_fast"  # the value of "format" in a config.json
CLIPS = ("cell_clip", "proj_clip")  # written also where they are null: AllenNLP needs the keys
PUBLISHED_CLIPS: dict[str, Any] = dict.fromkeys(CLIPS, 3)  # of the models of AllenNLP and of ELMoForManyLangs
_SLOTS_OF_MARKERS = len("<bos>") + 2  # words are cut before they are compared with the markers


def option(
    within: str | None = None, default: Any = dataclasses.MISSING, *, key: str | None = None, shown: bool = True
) -> Any:
    """Return a field with a range (fields.py), required without a default.

    key: in JSON, with dots for nesting; None: its name; shown: in the repr.
    """
    return dataclasses.field(default=default, repr=shown, metadata={"within": within, "key": key})


# What a lexicon must contain: what it lacks, padding; of characters also the markers of sentences and words.
WORD_MARKERS = ("<oov>", "<pad>")
CHARACTER_MARKERS = (*WORD_MARKERS, "<bos>", "<eos>", "<bow>", "<eow>")


@dataclass(frozen=True)
class CharCnnOptions:
    """The character encoder: `filters` are pairs (width in characters, number of filters), in order."""

    filters: tuple[tuple[int, int], ...] = option("of pairs [width, number], whole numbers above 0")
    activation: Activation = option(default="relu")  # noqa: RUF009 (a field)
    embedding_dim: int = option("above 0", 16, key="embedding.dim")
    max_characters_per_token: int = option("from 3 to 10,000", 50)
    n_characters: Literal[261, 262] = option(default=262)
    n_highway: int = option("from 0 to 1000", 0)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "filters", tuple((int(w), int(n)) for w, n in self.filters))
        if (widest := max(width for width, _ in self.filters)) > self.max_characters_per_token:
            raise CheckpointError(
                f"filters: wanted widths up to max_characters_per_token={self.max_characters_per_token}, found {widest}"
            )

    @property
    def n_filters(self) -> int:
        """Width of the concatenated filters and of the highways."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class LstmOptions:
    """The stacked LSTM: `dim` cells per direction, projected to `projection_dim`; each clipped."""

    dim: int = option("above 0")
    projection_dim: int = option("above 0")
    n_layers: int = option("from 1 to 1000", 1)
    cell_clip: float | None = option("above 0", None)
    proj_clip: float | None = option("above 0", None)
    use_skip_connections: bool = option(default=False)
    joined: bool | None = option(default=None)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def clips(self) -> tuple[float | None, float | None]:
        """The bounds of |cell| and |projection|; None: no clip."""
        return self.cell_clip, self.proj_clip

    @property
    def n_outputs(self) -> int:
        """How many layers of the LSTM are layers of the biLM: of a joined one the last alone."""
        return 1 if self.joined else self.n_layers


@dataclass(frozen=True)
class LexiconOptions:
    """The lexicons of a model that reads no bytes, as ELMoForManyLangs': the place of an entry is its id.

    characters: Unicode characters and markers, which char_cnn reads; () without char_cnn. words: with characters or
    alone; () for none, with word_dim 0. longest_word: without char_cnn, how many characters of a word are looked up;
    None: all.
    """

    characters: tuple[str, ...] = option("of strings, none twice and none empty", (), shown=False)
    words: tuple[str, ...] = option("of strings, none twice and none empty", (), shown=False)
    word_dim: int = option("0 or more", 0)
    longest_word: int | None = option("0 or more", None)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, markers in (("characters", CHARACTER_MARKERS), ("words", WORD_MARKERS)):
            object.__setattr__(self, name, entries := tuple(getattr(self, name)))
            if missing := [marker for marker in markers if entries and marker not in entries]:
                raise CheckpointError(f"lexicon.{name}: wanted the markers {', '.join(markers)}, found no {missing[0]}")
        if bool(self.words) != bool(self.word_dim):
            raise CheckpointError(f"lexicon.word_dim: wanted 0 without words alone, found {self.word_dim}")


@dataclass(frozen=True)
class ElmoOptions:
    """A biLM of characters (`char_cnn`), of word ids (`char_cnn=None`, `n_tokens_vocab` words) or of lexicons.

    Defaults are bilm-tf's for a missing key. The fields after `dropout` describe the training; they may be None. `loss`
    is not in bilm-tf: the loss that trained the softmax table, one of LOSSES; nor `tokenizer`, which splits
    lines of text for this model, None at white space; nor `vocabulary_sha256`, the digest of the words to predict,
    None where it is not known. Nor are `lexicon` and `lstm.joined`: each
    layer reads both directions of the one below, without clips, and one projection with a bias follows the last.
    """

    lstm: LstmOptions
    char_cnn: CharCnnOptions | None = None
    lexicon: LexiconOptions | None = None
    bidirectional: Literal[True] = option(default=True)
    dropout: float = option("from 0 to below 1", 0.1)
    n_tokens_vocab: int | None = option("above 0", None)
    n_train_tokens: int | None = option("0 or more", None)
    n_epochs: int | None = option("0 or more", None)
    batch_size: int | None = option("above 0", None)
    unroll_steps: int | None = option("above 0", None)
    n_negative_samples_batch: int | None = option("above 0", None)
    all_clip_norm_val: float | None = option("above 0", None)
    learning_rate: float | None = option("above 0", None)
    sample_softmax: bool | None = option(default=None)
    share_embedding_softmax: bool | None = option(default=None)
    loss: Loss | None = option(default=None)  # noqa: RUF009 (a field)
    tokenizer: Tokenizer | None = option(default=None)  # noqa: RUF009 (a field)
    vocabulary_sha256: str | None = option(default=None)

    def __post_init__(self) -> None:
        check_fields(self)
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
    def why_not_trainable(self) -> str | None:
        """Return why the model cannot be exported to bilm-tf or trained, or None."""
        if self.lexicon is not None:
            return "its characters and words are those of a lexicon, not bytes"
        return "its LSTM joins both directions in each layer" if self.lstm.joined else None

    @property
    def trained_by(self) -> str:
        """The name of the loss: `loss` or, if that is None, what bilm-tf's sample_softmax says."""
        return self.loss or BILM_TF_LOSSES[self.sample_softmax is not False]

    @property
    def loss_kind(self) -> LossKind:
        """What files hold of the loss."""
        return LOSS_KINDS[self.trained_by]

    @classmethod
    def from_dict(cls, values: Any, source: str = "options") -> "ElmoOptions":
        """Return the options in a parsed options.json; a CheckpointError begins with `source`."""
        options = typed(values, cls, source)
        if options.reads_word_ids and options.n_tokens_vocab is None:
            refuse(source, ["char_cnn: wanted an object (or n_tokens_vocab, for a model of word ids), found nothing"])
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return bilm-tf's nested dictionary; from_dict reads it back to equal options."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # lists in place of tuples
        for section in [values, *(each for each in values.values() if isinstance(each, dict))]:
            for name in [name for name, value in section.items() if value is None and name not in CLIPS]:
                del section[name]
        if self.char_cnn is not None:
            values["char_cnn"]["embedding"] = {"dim": values["char_cnn"].pop("embedding_dim")}
            if self.lexicon is not None:
                del values["char_cnn"]["n_characters"]  # a number of bytes
        return values

    def with_n_characters(self, n_characters: Literal[261, 262]) -> "ElmoOptions":
        """Return the same options with `n_characters` 261 (as bilm-tf needs while training) or 262 (when used)."""
        if self.char_cnn is None:
            return self
        return dataclasses.replace(self, char_cnn=dataclasses.replace(self.char_cnn, n_characters=n_characters))


def read_options(path: str | os.PathLike[str]) -> ElmoOptions:
    """Return the options in a bilm-tf options.json or our config.json.

    Raises: CheckpointError naming every wrong key, with what was wanted and found.
    """
    path = Path(path)
    if path.suffix in (".hdf5", ".h5"):
        raise CheckpointError(
            f"{path}: wanted options.json as options_file, found weights; did you swap options_file and weight_file?"
        )
    values: Any
    if path.name == CONFIG:
        values = read_folder(path.parent, [CONFIG], lambda folder: read_json(folder / CONFIG, Any))
    else:
        values = read_json(path, Any)
    if isinstance(values, dict) and values.get("format") == OWN_FORMAT:
        values = values.get("options")
    return ElmoOptions.from_dict(values, source=str(path))


def write_options(path: str | os.PathLike[str], options: ElmoOptions) -> None:
    """Write bilm-tf's options.json, complete or not at all."""
    with write_failures_named(path):
        write_json(path, options.to_dict(), indent=2)
