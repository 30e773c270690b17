"""Tokenizers: what each makes of a line, that text may be cut at any white space, and that a model brings its own."""

import sys
from unicodedata import normalize

import pytest

from elmo_fast.errors import MissingExtraError
from elmo_fast.op_choices import TOKENIZERS
from elmo_fast.text import split_sentences, tokenizer
from elmo_fast.text.sources import TextFile
from elmo_fast.text.tokenizers import _sentence_rules

# Pairs of lines: a text, and its tokens.
LINES = {
    "whitespace": """
 Don't \t stop, now.
Don't stop, now.
""",
    "basic": """
Don't panic, John's dog said: it'll cost $1,000...
Do n't panic , John 's dog said : it 'll cost $ 1,000 ...
the well-known O'Neill (U.S.) isn’t 3.5 years--old
the well-known O'Neill ( U.S. ) is n’t 3.5 years -- old
</S> <unk> e-mail@x 'quoted'
</S> <unk> e-mail @ x ' quoted '
नमस्ते e\u0301te\u0301 日本語。
नमस्ते e\u0301te\u0301 日 本 語 。
ELMo说得很好, 단어 임베딩을 カタカナ
ELMo 说 得 很 好 , 단어 임베딩을 カタカナ
""",
    "spacy": """
Don't go to the U.S. (now)
Do n't go to the U.S. ( now )
""",
    "logs": """
081109 203615 148 INFO dfs.DataNode: block blk_38865049064139660
<NUM> <NUM> <NUM> INFO dfs . DataNode : block blk_ <NUM>
2015-10-18 18:01:47,978 [main] v2 -5 +3.2e-7 12ms
<TIME> <TIME> [ main ] v <NUM> <NUM> <NUM> <NUM> ms
2005-06-03-15.42.50.675872 2024-01-02T03:04:05.123Z 12:30 10/Oct/2000:13:55:36
<TIME> <TIME> <TIME> <TIME>
10.0.0.1:8080, user@host.org https://a.b/c?d=1. 00:1a:2b:3c:4d:5e fe80::1ff
<ADDRESS> , <ADDRESS> <ADDRESS> . <ADDRESS> <ADDRESS>
C:\\Windows\\x.dll, /var/log/syslog. ~/x ../y a/b/c and/or
<PATH> , <PATH> . <PATH> <PATH> <PATH> and / or
0xdeadBEEF id=550e8400-e29b-41d4-a716-446655440000 a3f9c2d1 facade users:fbbeceef
<HEX> id = <HEX> <HEX> facade users : <HEX>
<NUM> <unk> std::vector 1.2.3
<NUM> <unk> std : : vector <NUM>
""",
}


def pairs(name):
    """Lines and their tokens; those of a name with +nfc are composed."""
    plain = name.removesuffix("+nfc")
    if plain == "spacy":
        pytest.importorskip("spacy")
    lines = LINES[plain].strip("\n").split("\n")
    tokens = lines[1::2] if plain == name else [normalize("NFC", line) for line in lines[1::2]]
    return list(zip(lines[::2], tokens, strict=True))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_line_has_these_tokens(name):
    for line, expected in pairs(name):
        assert tokenizer(name)(line) == expected.split()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_can_be_cut_at_any_white_space(name):
    """So corpora are tokenized block by block, and each distinct word once."""
    tokenize, words = tokenizer(name), " ".join(line for line, _ in pairs(name)).split()
    assert tokenize(" ".join(words)) == [token for word in words for token in tokenize(word)]
    assert tokenize(" a \0 b") == ["a", "\0", "b"]


def test_placeholders_stay_what_they_are():
    """So text whose numbers were replaced before, by this tokenizer or by hand, can be processed again."""
    for _, expected in pairs("logs"):
        assert tokenizer("logs")(expected) == expected.split()


def test_running_text_is_split_at_its_punctuation_and_blank_lines():
    pytest.importorskip("spacy")
    text = "I like Berlin. Mr. Smith  said\nso, too!\n\nA title\n \nReally?\n"
    assert split_sentences(text) == ["I like Berlin.", "Mr. Smith said so, too!", "A title", "Really?"]
    assert split_sentences(" \n\n") == []


def test_a_sentence_splitter_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    _sentence_rules.cache_clear()
    with pytest.raises(MissingExtraError, match=r"^splitting text into sentences needs spacy.*\[spacy\]"):
        split_sentences("A. B.")


def test_python_takes_a_function_where_it_takes_a_name(tmp_path):
    """Of any kind, hashable or not, wherever text is split in this process."""

    class Split(list):
        def __call__(self, text):
            return text.split("|")

    (tmp_path / "text").write_text("a|b\n")
    assert list(TextFile(tmp_path / "text", tokenizer=Split()).sentences()) == [(["a", "b"], "a|b")]
