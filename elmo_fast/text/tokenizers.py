"""Tokenizers: lines of text to tokens, by white space, as plain words and punctuation, as spaCy does, or for logs.

Every tokenizer first splits at white space and then splits each of these words without looking at its neighbours. So
text can be cut at any white space, and a word that occurs again is split only once.

Without a tokenizer, files hold tokens separated by spaces, but strings passed in Python are raw text (RAW_TEXT).
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from elmo_fast.errors import check_choice, require
from elmo_fast.op_choices import TOKENIZERS, Tokenizer

Tokenize = Callable[[str], list[str]]
RAW_TEXT: Tokenizer = "basic"  # of strings, for a model that stores no tokenizer
NFC = "+nfc"
CACHED_WORDS = 1 << 16
LINES_LOOKED_AT = 100  # by first_raw_line
RAW_TEXT_ADVICE = (
    "looks like raw text; --tokenizer basic splits off punctuation (--tokenizer whitespace omits this line)"
)
# Chinese characters, each a token of `basic`, as BERT's tokenizer has them (not kana, Hangul or Thai).
_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f]")
CLITICS = "s|m|d|re|ve|ll"

# Words of `logs` for what differs from line to line, and what they replace, the first that matches.
PLACEHOLDERS = {
    "ADDRESS": r"""[a-z][a-z0-9+.-]*://[^\s"'<>()\[\]{}]*[\w/]"""
    r"|[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.]*\w)"
    r"|(?<![\w:])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:])"
    r"|(?<![\w:])(?=[a-f:]*\d)(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){0,6}(?::[0-9a-f]{1,4}){1,6})(?![\w:])",
    "TIME": r"(?<![\w.])(?:\d{4}-\d\d-\d\d(?:[T_-]\d\d[.:]\d\d(?:[.:]\d\d(?:[.,]\d+)?)?)?"
    r"|\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"
    r"|\d\d/[a-z]{3}/\d{4}(?::\d\d:\d\d:\d\d)?|\d\d?/\d\d?/(?:\d{4}|\d\d)|\d{4}[./]\d\d[./]\d\d|\d\d[./]\d\d[./]\d{4})"
    r"(?:z|[+-]\d\d:?\d\d)?(?![\w:]|[.,]\d)",
    "PATH": r"(?<!\w)(?:~|\.\.?)?(?:/[\w.+@%~=-]*\w)+/?|(?<![\w/])\w[\w.+@-]*(?:/[\w.+@-]*\w){2,}/?"
    r"""|(?<!\w)[a-z]:\\[^\s"'<>|:]*\w|\\\\\w[^\s"'<>|:]*\w""",
    "HEX": r"0x[0-9a-f]+(?!\w)|(?<![^\W_])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\w)"
    r"|(?<![^\W_])(?:(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{6,}|[a-f]{8,})(?![^\W_])",
    "NUM": r"(?:(?<![\w.)\]])[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+(?!\w))?",
}


def tokenizer(name: str | Tokenize | None) -> Tokenize:
    """Return the function that splits text into tokens.

    name: such a function; one of TOKENIZERS; None is "whitespace", the tokenizer of models that store none:
        "whitespace": str.split
        "basic": words, numbers and punctuation marks; English contractions as in the Penn Treebank ("do n't"); each
            Chinese character is a word
        "spacy": the rules of spaCy for English (extra spacy)
        "logs": as basic; numbers, hexadecimal numbers, addresses, paths and times become <NUM>, <HEX>, <ADDRESS>,
            <PATH> and <TIME>
        any of them with "+nfc": the same, of text in Unicode's form NFC, which composes letters and combining marks

    Raises ElmoFastError, MissingExtraError.
    """
    if callable(name):
        return name
    check_choice("tokenizer", name := name or "whitespace", TOKENIZERS)
    split = _tokenizer(name.removesuffix(NFC))
    return (lambda text: split(unicodedata.normalize("NFC", text))) if name.endswith(NFC) else split


@cache
def _tokenizer(name: str) -> Tokenize:
    if name == "whitespace":
        return str.split
    if name == "spacy":
        rules = require("spacy", "spacy", "the tokenizer spacy").blank("en").tokenizer
        return _by_word(lambda word: [token.text for token in rules(word)])
    # The characters of words: those of \w and the combining marks, which \w lacks.
    marks = (chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M"))
    letter = rf"[\w{''.join(marks)}]"
    if name == "basic":
        end, quote = rf"(?!{letter})", "['’]"
        apostrophe = rf"{quote}(?!(?:{CLITICS}){end}){letter}+"
        kinds = (
            r"</?\w+>",
            rf"{letter}+(?=n{quote}t{end})|n{quote}t{end}|{quote}(?:{CLITICS}){end}",
            rf"\d+(?:[.,:]\d+)+{end}|(?:[^\W\d_]\.){{2,}}",
            rf"{letter}+(?:-{letter}+|{apostrophe})*",
            r"\.{2,}|-{2,}|\S",
        )
        pattern = re.compile("|".join(kinds), re.IGNORECASE)
        return _by_word(lambda word: [match.group() for match in pattern.finditer(_CHINESE.sub(r" \g<0> ", word))])
    replaced = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PLACEHOLDERS.items())
    words = re.compile(rf"</?\w+>|{replaced}|(?:(?!\d){letter})+|\S", re.IGNORECASE)
    return _by_word(lambda w: [f"<{m.lastgroup}>" if m.lastgroup else m.group() for m in words.finditer(w)])


def split_sentences(text: str) -> list[str]:
    """Split running text into sentences by its punctuation and blank lines, with spaCy's rules for English.

    White space within a sentence becomes one space, so each sentence is one line. Raises MissingExtraError without
    spaCy (extra spacy).
    """
    rules = _sentence_rules()
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [sentence.text for paragraph in paragraphs if paragraph for sentence in rules(paragraph).sents]


@cache
def _sentence_rules() -> Any:
    rules = require("spacy", "spacy", "splitting text into sentences").blank("en")
    rules.add_pipe("sentencizer")
    rules.max_length = 1 << 30  # spaCy's own limit protects parsers, which take memory
    return rules


def _by_word(split: Tokenize) -> Tokenize:
    cached = lru_cache(CACHED_WORDS)(split)
    return lambda text: [token for word in text.split() for token in cached(word)]


def first_raw_line(lines: Sequence[str], lengths: Sequence[int]) -> int | None:
    """Return the first line that is not tokenized, if most of the first ones are not, or None.

    lengths: into how many words each was split; a line that `RAW_TEXT` splits further is not tokenized.
    """
    split = tokenizer(RAW_TEXT)
    counts = [len(split(line)) for line in lines[:LINES_LOOKED_AT]]
    raw = [line for line, count in enumerate(counts) if count > lengths[line]]
    return raw[0] if 2 * len(raw) > sum(map(bool, counts)) else None
