"""The sections of a biLM's options: the character encoder, the LSTM, the lexicons."""

from dataclasses import dataclass

from ..errors import CheckpointError
from .option_fields import Section, option, optional

# What a lexicon must contain: what it lacks, padding; of characters also the markers of sentences and words.
WORD_MARKERS = ("<oov>", "<pad>")
CHARACTER_MARKERS = (*WORD_MARKERS, "<bos>", "<eos>", "<bow>", "<eow>")


@dataclass(frozen=True)
class CharCnnOptions(Section):
    """The character encoder: `filters` are pairs (width in characters, number of filters), in order."""

    filters: tuple[tuple[int, int], ...] = option("filters")
    activation: str = option("activation", "relu")
    embedding_dim: int = option("count", 16, key="embedding.dim")
    max_characters_per_token: int = option("slots", 50)
    n_characters: int = option("characters", 262)
    n_highway: int = option("highways", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
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
class LstmOptions(Section):
    """The stacked LSTM: `dim` cells per direction, projected to `projection_dim`; each clipped."""

    dim: int = option("count")
    projection_dim: int = option("count")
    n_layers: int = option("layers", 1)
    cell_clip: float | None = option("clip", None)
    proj_clip: float | None = option("clip", None)
    use_skip_connections: bool = option("flag", False)
    joined: bool | None = optional("flag")

    @property
    def n_outputs(self) -> int:
        """How many layers of the LSTM are layers of the biLM: of a joined one the last alone."""
        return 1 if self.joined else self.n_layers


@dataclass(frozen=True)
class LexiconOptions(Section):
    """The lexicons of a model that reads no bytes, as ELMoForManyLangs': the place of an entry is its id.

    characters: Unicode characters and markers, which char_cnn reads; () without char_cnn. words: beside the characters,
    or alone; () for none, with word_dim 0. longest_word: without char_cnn, how many characters of a word are looked up;
    None: all.
    """

    characters: tuple[str, ...] = option("lexicon", ())
    words: tuple[str, ...] = option("lexicon", ())
    word_dim: int = option("whole", 0)
    longest_word: int | None = optional("whole")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, markers in (("characters", CHARACTER_MARKERS), ("words", WORD_MARKERS)):
            object.__setattr__(self, name, entries := tuple(getattr(self, name)))
            if missing := [marker for marker in markers if entries and marker not in entries]:
                raise CheckpointError(f"lexicon.{name}: wanted the markers {', '.join(markers)}, found no {missing[0]}")
        if bool(self.words) != bool(self.word_dim):
            raise CheckpointError(f"lexicon.word_dim: wanted 0 without words alone, found {self.word_dim}")
