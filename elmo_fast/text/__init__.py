"""Text to numbers: vocabularies, character ids, sentences. No torch until ids become a tensor."""

from elmo_fast.text.characters import (
    BOS,
    BOS_WORD,
    BOW,
    EOS,
    EOS_WORD,
    EOW,
    MAX_CHARACTERS,
    PAD,
    ByteSpelling,
    CharacterTable,
    LexiconSpelling,
    Spelling,
    batch_to_ids,
    words_to_ids,
)
from elmo_fast.text.checks import check_sentences, check_words, checked_sentences
from elmo_fast.text.sentences import files_matching, read_lines, read_sentences, rereadable
from elmo_fast.text.sources import ScannedText, Source, opened_source, scan
from elmo_fast.text.tokenizers import split_sentences, tokenizer
from elmo_fast.text.vocabulary import MARKERS, Vocabulary, count_words, read_words

__all__ = [
    "BOS",
    "BOS_WORD",
    "BOW",
    "EOS",
    "EOS_WORD",
    "EOW",
    "MARKERS",
    "MAX_CHARACTERS",
    "PAD",
    "ByteSpelling",
    "CharacterTable",
    "LexiconSpelling",
    "ScannedText",
    "Source",
    "Spelling",
    "Vocabulary",
    "batch_to_ids",
    "check_sentences",
    "check_words",
    "checked_sentences",
    "count_words",
    "files_matching",
    "opened_source",
    "read_lines",
    "read_sentences",
    "read_words",
    "rereadable",
    "scan",
    "split_sentences",
    "tokenizer",
    "words_to_ids",
]
