"""Inputs of sentences: each kind gives the same sentences, from any place, and refuses what it cannot read."""

import csv
import gzip
import json
import random
import struct
import sys

import pytest

from elmo_fast._io import compressed
from elmo_fast.errors import ElmoFastError, MissingExtraError
from elmo_fast.text import opened_source, read_lines, scan
from elmo_fast.text.sources import detected_format

LINES = [f"word{n} is word {n} ." for n in range(3000)]


def rows(path, **settings):
    with opened_source(path, **settings) as source:
        return [sentence.tokens for sentence in source.sentences()]


def all_rows(path, **settings):
    assert rows(path, **settings) == [line.split() for line in LINES]


def test_zstandard_of_several_frames_is_text_and_damage_is_named(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    whole = "".join(f"{line}\n" for line in LINES).encode()
    frames = [zstandard.compress(whole[:5000]), zstandard.compress(whole[5000:])]
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    checked = packer.compress(random.Random(0).randbytes(150_000).hex().encode())
    user_data = b"\x5a\x2a\x4d\x18\x05\0\0\0\x28\xb5\x2f\xfd\0"  # a frame without text
    path = tmp_path / "in.zst"
    path.write_bytes(user_data + b"".join(frames) + user_data)
    all_rows(path)
    path.write_bytes(frames[0] + checked)
    with compressed.reading(path) as stream:
        assert len(stream.read()) == 305_000
    cut = frames[0] + frames[1][:-9], user_data[:-1] + frames[0], checked[:-1]
    for damaged in (*cut, b"plain", frames[0] + b"\n"):
        path.write_bytes(damaged)
        with pytest.raises(ElmoFastError, match=r"in\.zst: damaged \.zst data: .+"):
            list(read_lines(path))


def test_parquet_files_and_folders_of_them(tmp_path):
    """Rows of strings and of tokens, over the edges of files, groups of rows and batches; bad ones named."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    split = [line.split() for line in LINES]
    parquet.write_table(pa.table({"text": LINES, "n": range(3000)}), tmp_path / "in.parquet", row_group_size=1000)
    all_rows(tmp_path / "in.parquet")
    folder = tmp_path / "files"
    folder.mkdir()
    for number, part in enumerate((split[:1999], split[1999:2000], split[2000:])):
        parquet.write_table(pa.table({"words": part}), folder / f"{number}.parquet", row_group_size=1500)
    all_rows(folder, column="words")
    parquet.write_table(pa.table({"words": split, "n": range(3000)}), folder / "3.parquet")
    with opened_source(folder, column="words") as source:
        assert source.other_columns() is None
    with opened_source(tmp_path / "in.parquet") as source:
        assert source.other_columns() == pa.table({"n": range(3000)})
    (folder / "0.parquet").replace(folder / "4.parquet")
    (folder / "3.parquet").replace(folder / "0.parquet")
    with (
        opened_source(folder, column="words") as source,
        pytest.raises(ElmoFastError, match=r"1\.parquet: its columns are not those of .*0\.parquet"),
    ):
        source.other_columns()
    with pytest.raises(ElmoFastError, match=r"0\.parquet has no column 'text'; it has: words, n"):
        rows(folder)
    with pytest.raises(
        ElmoFastError, match=r"in\.parquet, row 1, column 'n': wanted a string or a list of words.*; found 0"
    ):
        rows(tmp_path / "in.parquet", column="n")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(ElmoFastError, match=r"damaged\.parquet: damaged, or no Parquet file"):
        rows(tmp_path / "damaged.parquet")
    buffers = [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    broken = pa.table({"text": pa.Array.from_buffers(pa.string(), 1, buffers)})
    parquet.write_table(broken, tmp_path / "damaged.parquet")
    with pytest.raises(ElmoFastError, match=r"damaged\.parquet: damaged, or no Parquet file: .*utf-8"):
        rows(tmp_path / "damaged.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ElmoFastError, match=r"the folder '.*empty' contains no \.parquet file; .* cat FOLDER"):
        rows(tmp_path / "empty")
    with pytest.raises(ElmoFastError, match=r"empty: is a folder, not a text file; .* cat \S*empty/\* \| elmo-fast"):
        rows(tmp_path / "empty", format_in="text")


def write_table(path, columns):
    """The columns as a file of the kind that its name says."""
    names, records = list(columns), list(zip(*columns.values(), strict=True))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, each, strict=True))) + "\n" for each in records))
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(__import__("pyarrow").table(columns), path)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([names, *records])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_records_of_text_files(tmp_path, kind):
    """Over the edges of blocks, packed too; fields with delimiters, quotes, line breaks and white space at the ends."""
    write_table(tmp_path / f"in.{kind}", {"n": range(3000), "text": LINES, "last": [""] * 3000})
    all_rows(tmp_path / f"in.{kind}")
    packed = tmp_path / f"in.{kind}.gz"
    packed.write_bytes(gzip.compress((tmp_path / f"in.{kind}").read_bytes()))
    all_rows(packed)
    odd = ['a, "b"\tc', " d\ne ", "", "f"]
    write_table(tmp_path / f"odd.{kind}", {"text": odd, "n": ["\t", "", " ", "x\r\ny"]})
    with opened_source(tmp_path / f"odd.{kind}") as source:
        assert [sentence.name for sentence in source.sentences()] == [each.strip() for each in odd]
        pytest.importorskip("pyarrow")
        assert source.other_columns()["n"].to_pylist() == ["\t", "", " ", "x\r\ny"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_missing_value_is_an_empty_sentence_as_an_empty_field_of_csv(tmp_path, kind):
    """Counted in the warning, which says what the output has for it."""
    missing = "" if kind == "csv" else None
    write_table(tmp_path / f"in.{kind}", {"id": [1, 2, 3], "text": ["a b", missing, "c"]})
    warning = rf"in\.{kind}: 1 blank row \(row 2\): the output has an empty array \(with pool: zeros\) for it$"
    with opened_source(tmp_path / f"in.{kind}") as source, pytest.warns(UserWarning, match=warning):
        text = scan(source, keep_lines=True)
    assert (text.lengths.tolist(), text.lines) == ([2, 0, 1], ["a b", "", "c"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "id,text\n1,a\n2,b,c\n", "a.csv, line 3: wanted 2 fields, as in the header, found 3; a field that"),
        ("a.csv", 'id,text\n1,"a\n2,b\n', "a.csv, line 3: damaged CSV: unexpected end of data"),
        ("a.csv", "id,words\n1,a\n", "a.csv has no column 'text'; it has: id, words; choose one with column=NAME"),
        ("a.csv", "id,TEXT\n1,a\n", "a.csv has no column 'text'; it has: id, TEXT; did you mean TEXT?"),
        ("a.csv", "text,text\n1,a\n", "a.csv: two columns have the same name: text, text"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": \n', "a.jsonl, line 3: no JSON: "),
        ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl, line 1: no JSON: "),
        ("a.jsonl", '["a"]\n', r"""a.jsonl, line 1: wanted a JSON object, found '\["a"\]'"""),
        ("a.jsonl", '{"text": "a"}\n{"n": 1}\n', "a.jsonl, row 2 has no column 'text'; it has: n"),
        ("a.jsonl", '{"text": 5}\n', "a.jsonl, row 1, column 'text': wanted a string or a list of words"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ElmoFastError, match=message):
        rows(tmp_path / name)


def test_other_columns_keep_types_that_fit_every_row(tmp_path):
    """Of JSON, the narrowest type of all rows, also beyond the first block; keys that a record lacks are null."""
    pytest.importorskip("pyarrow")
    records = [{"text": "a", "n": 1, "only": None}] * 1500 + [{"text": "b", "n": 0.5, "more": ["x"]}]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    with opened_source(tmp_path / "in.jsonl") as source:
        table = source.other_columns()
    assert table.to_pylist()[1499:] == [{"n": 1.0, "only": None, "more": None}, {"n": 0.5, "only": None, "more": ["x"]}]
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"text": "c", "n": "one"}\n')
    with opened_source(tmp_path / "in.jsonl") as source, pytest.raises(ElmoFastError, match="values of several types"):
        source.other_columns()
    write_table(tmp_path / "one.csv", {"text": ["a"]})
    with opened_source(tmp_path / "one.csv") as source:
        assert source.other_columns() is None


def test_a_saved_dataset_and_a_folder_of_files(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    for offline in ("huggingface_hub.constants.HF_HUB_OFFLINE", "datasets.config.HF_HUB_OFFLINE"):
        monkeypatch.setattr(offline, True)
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_dict({"text": LINES, "n": list(range(3000))})
    dataset.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"dev": dataset}).save_to_disk(str(tmp_path / "split"))
    all_rows(tmp_path / "one")
    all_rows(tmp_path / "split", split="dev")
    with opened_source(tmp_path / "one") as source:
        assert source.other_columns().to_pydict() == {"n": list(range(3000))}
    with pytest.raises(ElmoFastError, match=r"split has no split 'train'; it has: dev"):
        rows(tmp_path / "split")
    with pytest.raises(ElmoFastError, match=r"one has no column 'words'; it has: text, n"):
        rows(tmp_path / "one", column="words")
    with pytest.raises(ElmoFastError, match=r"nobody/nothing: cannot be read as a dataset: "):
        rows("nobody/nothing", format_in="dataset")
    assert [detected_format(tmp_path / name) for name in ("one", "split", "x.parquet", "x.txt")] == [
        "dataset", "dataset", "parquet", "text",
    ]  # fmt: skip


def fasta(tmp_path, text):
    (tmp_path / "in.fasta").write_text(text)
    with opened_source(tmp_path / "in.fasta", "fasta") as source:
        return list(source.sentences())


def test_fasta_records_are_sentences_of_residues(tmp_path):
    """The stop "*" at the end of a record, on a line of its own or not, is no residue; within one it is a token."""
    actual = fasta(tmp_path, ">sp|P1|X first protein\nMKV l*\n\nAAG*\r\n> P2\nacd\n*\n>P3\nMK*")
    assert actual == [(list("MKVL*AAG"), "sp|P1|X"), (list("ACD"), "P2"), (list("MK"), "P3")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MKV\n>P1\nMK\n", r"line 1: wanted a line '>NAME' before the first residue, found 'MKV'"),
        (">P1\nMK\nA-C\n", r"line 3: the character '-' is no residue.*; remove the gaps"),
        (">P1\nMK\n\nA1C\n", r"line 4: the character '1' is no residue"),
        (">P1\nMé\n", r"line 2: the character 'É' is no residue"),
        (">P1\nM\n>\nM\n", r"line 3: '>' without a name"),
        (">P1\nM\n>P2\n>P3\nM\n", r"line 3: the record 'P2' has no residues"),
        (">P1\nM\n>P2\n*\n", r"line 3: the record 'P2' has no residues"),
    ],
)
def test_a_bad_line_of_fasta_is_named(tmp_path, text, message):
    with pytest.raises(ElmoFastError, match=r"in\.fasta, " + message):
        fasta(tmp_path, text)


def test_keys_of_fasta_that_cannot_be(tmp_path):
    for text, message in (
        (">P1\nM\n>P1 again\nK\n", "records 1 and 2 have the same name, but names must differ; rename it"),
        (">a/b\nM\n", r"record 1: 'a/b' cannot be the name of a dataset .*; rename it, or choose another format"),
    ):
        (tmp_path / "in.fasta").write_text(text)
        with opened_source(tmp_path / "in.fasta", "fasta") as source, pytest.raises(ElmoFastError, match=message):
            scan(source, as_keys=True)


@pytest.mark.parametrize(
    ("name", "extra", "library"),
    [("x.parquet", "parquet", "pyarrow"), ("x.zst", "zst", "zstandard"), ("saved", "datasets", "datasets")],
)
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch, name, extra, library):
    for module in (library, f"{library}.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).touch()
    with pytest.raises(MissingExtraError, match=rf"{library}, which is not installed: pip .*elmo-fast\[{extra}\]"):
        rows(tmp_path / name, format_in="dataset" if name == "saved" else None)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("x.FASTA", "for FASTA, give format_in=fasta"), ("x.json", "for a JSON object per line, give format_in=jsonl")],
)
def test_a_name_that_says_no_text_gives_a_warning_unless_text_is_asked_for(tmp_path, name, advice):
    (tmp_path / name).write_text(">P1\nMK\n")
    warning = pytest.warns(UserWarning, match=f"{name} is read as text, a sentence per line; {advice}")
    with warning, opened_source(tmp_path / name) as source:
        assert scan(source).lengths.tolist() == [1, 1]
    with opened_source(tmp_path / name, "text") as source:
        assert scan(source).lengths.tolist() == [1, 1]


CONLLU = """# sent_id = weblog-1
# text = Don't go
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	_	AUX	_	_	_	_	_	_
2	n't	_	PART	_	_	_	_	_	_
2.1	gone	_	VERB	_	_	_	_	_	_
3	go	_	VERB	_	_	_	_	_	_


# sent_id = weblog-2
1	ad hoc	_	_	_	_	_	_	_	_
"""


def test_conllu_sentences_are_forms_named_by_their_sent_id(tmp_path):
    """The last sentence without a blank line too; without any sent_id, the words are the name."""
    with gzip.open(tmp_path / "a.conllu.gz", "wt") as file:
        file.write(CONLLU)
    with opened_source(tmp_path / "a.conllu.gz", tokenizer="basic") as source:
        sentences = list(source.sentences())
        assert sentences == [(["Do", "n't", "go"], "weblog-1"), (["ad hoc"], "weblog-2")]
        assert (source.keyed, source.shown(sentences[0])) == (True, "weblog-1 | Do n't go")
    path = tmp_path / "b.conllu"
    apart = CONLLU.replace("# text", "\n# text").replace("# sent_id = weblog-2\n1", "# sent_id = weblog-2\n\n1")
    path.write_text(f"# sent_id = none\n\n{apart}# sent_id = after\n")
    with opened_source(path) as source:
        assert list(source.sentences()) == sentences, "comments stand before the words, also apart from them"
    path.write_text(CONLLU.replace("# sent_id", "# id"))
    with opened_source(path) as source:
        assert [sentence.name for sentence in source.sentences()] == ["Do n't go", "ad hoc"]
        assert not source.keyed
    for text, message in (
        (CONLLU.replace("# sent_id = weblog-2", "#"), "sentence 2: has no sent_id, as the first sentence has"),
        (CONLLU.replace("3\tgo", "4\tgo"), "line 7: wanted the word number 3"),
    ):
        path.write_text(text)
        with pytest.raises(ElmoFastError, match=f"b.conllu, {message}"):
            rows(path)
