"""Text to numbers: vocabularies, character ids, sentences. No torch until ids become a tensor."""

from elmo_fast.text.characters import CharacterTable, Spelling, batch_to_ids, words_to_ids
from elmo_fast.text.checks import check_sentences, check_words, checked_sentences
from elmo_fast.text.sentences import files_matching, read_lines, rereadable
from elmo_fast.text.sources import ScannedText, Source, opened_source, scan
from elmo_fast.text.tokenizers import split_sentences, tokenizer
from elmo_fast.text.vocabulary import MARKERS, Vocabulary, count_words, read_words, unknown_hints

__all__ = [
    "MARKERS",
    "CharacterTable",
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
    "read_words",
    "rereadable",
    "scan",
    "split_sentences",
    "tokenizer",
    "unknown_hints",
    "words_to_ids",
]
