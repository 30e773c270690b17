"""Files of examples: each format as its definition says, every line that does not fit named with its number."""

import csv
import gzip
import json

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import Example, read_examples, write_examples
from elmo_fast.tasks.formats import write_tagged_conllu


def conllu(*rows):
    """Lines of ten columns from (id, form, upos, xpos)."""
    return "".join(f"{i}\t{form}\t_\t{upos}\t{xpos}\t_\t_\t_\t_\t_\n" for i, form, upos, xpos in rows)


CONLLU = (
    "# sent_id = 1\n# text = Don't go there\n"
    + conllu((1, "Do", "AUX", "VB"), (2, "n't", "PART", "RB"), (3, "go", "VERB", "VB"))
    + "\n"
    + "# the range and the empty node are no words\n"
    + conllu(("1-2", "vámonos", "_", "_"), (1, "vamos", "VERB", "V"), (2, "nos", "PRON", "P"))
    + conllu(("2.1", "ir", "VERB", "V"), (3, "ad hoc", "ADV", "R"))
)


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_conllu_words_are_the_syntactic_ones(tmp_path):
    """Ranges (1-2) and empty nodes (1.1) are left out, comments too; the file may end without a blank line."""
    path = write(tmp_path, "a.conllu", CONLLU)
    assert read_examples(path) == [
        Example(["Do", "n't", "go"], ["AUX", "PART", "VERB"]),
        Example(["vamos", "nos", "ad hoc"], ["VERB", "PRON", "ADV"]),
    ]
    for column in ("xpos", 4, "4"):
        assert read_examples(path, column=column)[1].labels == ["V", "P", "R"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_conllu_is_written_again_with_other_tags(tmp_path, end):
    """Every other byte stays: comments with blanks at their end, ranges, empty nodes, a BOM, the line ends."""
    text = "\ufeff# text = a  \n" + CONLLU.replace("\n", end)
    path = tmp_path / "a.conllu"
    path.write_bytes(text.encode())
    write_tagged_conllu(tmp_path / "b.conllu", path, "xpos", [["A", "B", "C"], ["D", "E", "F"]])
    tags, expected = iter("ABCDEF"), []
    for line in text.split("\n"):
        fields = line.split("\t")
        expected.append("\t".join([*fields[:4], next(tags), *fields[5:]]) if fields[0].isdigit() else line)
    assert read_examples(tmp_path / "b.conllu", column="xpos")[1].labels == ["D", "E", "F"]
    assert (tmp_path / "b.conllu").read_bytes() == "\n".join(expected).encode()


def test_columns_of_conll_2003(tmp_path):
    """Documents' marks are no sentences, several blank lines are one end, and # is a word."""
    mark = "-DOCSTART- -X- -X- O\n"
    text = f"{mark}\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# # B-NP O\n{mark}\na DT O O"
    path = write(tmp_path, "a.conll", text)
    assert read_examples(path) == [
        Example(["EU", "rejects"], ["B-ORG", "O"]),
        Example(["#"], ["O"]),
        Example(["a"], ["O"]),
    ]
    assert [labels for _, labels, _ in read_examples(path, column=1)] == [["NNP", "VBZ"], ["#"], ["DT"]]
    assert read_examples(path, column="-2")[0].labels == ["B-NP", "B-VP"]


def test_columns_split_by_tabs_keep_blanks_in_words(tmp_path):
    """So do no-break spaces where blanks split."""
    assert read_examples(write(tmp_path, "a.bio", "ad hoc\tB-X\nx\tO\n")) == [Example(["ad hoc", "x"], ["B-X", "O"])]
    assert read_examples(write(tmp_path, "b.bio", "ad\u00a0hoc  B-X\nx   O\n"))[0].words == ["ad\u00a0hoc", "x"]


def test_tsv_both_ways_and_with_a_header(tmp_path):
    """label<TAB>sentence unless column 1 or the header says otherwise."""
    expected = [Example(["so", "good", "!"], ["pos"]), Example(["bad"], ["neg"])]
    assert read_examples(write(tmp_path, "a.tsv", "pos\tso  good !\n\nneg\tbad\n")) == expected
    assert read_examples(write(tmp_path, "a.tsv", "so good !\tpos\nbad\tneg\n"), column=1) == expected
    assert read_examples(write(tmp_path, "a.tsv", "sentence\tlabel\nso good !\tpos\nbad\tneg\n")) == expected
    assert read_examples(write(tmp_path, "a.tsv", "Label\tText\npos\tso good !\nneg\tbad\n")) == expected


def test_a_header_with_another_name_is_noticed(tmp_path):
    path = write(tmp_path, "a.tsv", "label\treview\ngood\ta film\n")
    with pytest.warns(
        UserWarning, match=r"a\.tsv, line 1: label \| review looks like a header, and is read as a sentence"
    ):
        assert len(read_examples(path)) == 2


def test_quoted_sentences_are_noticed_and_read_by_names(tmp_path):
    """As pandas writes them; quotes that belong to the sentence are left alone."""
    rows = 'good\t"the ""best"" film"\nbad\t"no"\n'
    with pytest.warns(UserWarning, match=r"a\.tsv, line 1: the sentence is quoted as in CSV .* as 1 of 2 are"):
        read_examples(write(tmp_path, "a.tsv", rows))
    path = write(tmp_path, "a.tsv", f"source\tmessage\n{rows}")
    named = read_examples(path, column="message", label_column="source")
    assert named == [Example(["the", '"best"', "film"], ["good"]), Example(["no"], ["bad"])]
    assert read_examples(write(tmp_path, "b.tsv", 'good\t"so" and "so"\n'))[0].words == ['"so"', "and", '"so"']


TABLE = [{"id": 7, "message": "so,  good!", "source": "pos"}, {"id": 8, "message": "bad\nfilm", "source": "neg"}]


def write_table(folder, ending, rows):
    """The rows as a file of that ending."""
    path = folder / f"table.{ending}"
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif ending == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        with open(path, "w", newline="") as file:
            lines = csv.DictWriter(file, rows[0], delimiter="\t" if ending == "tsv" else ",")
            lines.writeheader()
            lines.writerows(rows)
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_are_read_by_the_names_of_their_columns(tmp_path, ending):
    """With line breaks in a field, by the tokenizer; text and label are the columns without names."""
    path = write_table(tmp_path, ending, TABLE)
    names = {"column": "message", "label_column": "source"}
    assert read_examples(path, tokenizer="basic", **names) == [
        Example(["so", ",", "good", "!"], ["pos"]),
        Example(["bad", "film"], ["neg"]),
    ]
    assert [labels for _, labels, _ in read_examples(path, **names | {"label_column": "id"})] == [["7"], ["8"]]
    rows = [{"text": each["message"], "label": each["source"]} for each in TABLE]
    expected = read_examples(path, **names)
    assert read_examples(write_table(tmp_path, ending, rows), label_column="label") == expected


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"message": "a", "source": ""}, "row 2: the label is empty; fill it, or remove the row"),
        ({"message": "a", "source": None}, "row 2: the label is empty"),
        ({"message": "a"}, "row 2 has no column 'source'; it has: message; .* with label_column=NAME"),
        ({"message": " ", "source": "pos"}, "row 2: the sentence is empty; fill it, or remove the row"),
        ({"message": "a", "source": 1.5}, "row 2, column 'source': wanted a string or a whole number; got 1.5"),
        ({"source": "pos"}, "row 2 has no column 'message'"),
    ],
)
def test_rows_that_cannot_be_learned_are_named(tmp_path, row, words):
    path = write_table(tmp_path, "jsonl", [TABLE[0], row])
    with pytest.raises(ElmoFastError, match=rf"table\.jsonl, {words}"):
        read_examples(path, column="message", label_column="source")


def test_sentences_to_predict_keep_their_rows(tmp_path):
    """Line i is example i in every format with a sentence per line; a table needs no labels."""
    expected = [["a", "film"], [], ["so"], []]
    rows = [{"text": text} for text in ("a film", "", "so", " ")]
    paths = [write(tmp_path, "a.tsv", "x\ta film\n\nx\tso\n\t\n"), write_table(tmp_path, "jsonl", rows)]
    paths += [write(tmp_path, "b.csv", 'id,text\n1,a film\n2,\n3,so\n4,""\n')]
    for path in paths:
        assert [words for words, *_ in read_examples(path, labelled=False)] == expected
    text = write(tmp_path, "a.txt", "a film\n\nso\n \n")
    assert [words for words, *_ in read_examples(text, "text", labelled=False)] == expected
    assert [words for words, *_ in read_examples(text, "text")] == [["a", "film"], ["so"]]
    with pytest.raises(ElmoFastError, match="contains no sentence"):
        read_examples(write(tmp_path, "b.txt", "\n\n"), "text", labelled=False)


BROKEN_CONLLU = {
    r"line 5: wanted 10 columns split by tabs; got 9: 3 \| _": CONLLU.replace("\tgo\t", "\t"),
    "line 5: wanted the word number 3 .*got '4'; is a blank line missing": CONLLU.replace("3\tgo", "4\tgo"),
    "line 8: wanted the word number 4 .*got '1'; is a blank line missing": CONLLU.replace("\n\n", "\n"),
    "line 5: the label is empty": CONLLU.replace("\tVERB\t", "\t\t"),
}


@pytest.mark.parametrize(
    ("name", "text", "column", "words"),
    [
        *(("a.conllu", text, None, words) for words, text in BROKEN_CONLLU.items()),
        *(
            ("a.conllu", CONLLU, column, "one of id, form, .*or 0 to 9; got")
            for column in ("pos", 10, -1, "²", "9" * 5000)
        ),
        ("a.conll", "a B C\nb B\n", None, r"line 2: wanted 3 columns, as the lines before; got 2: b \| B"),
        ("a.conll", "\n\na\nb\n", None, r"line 3: there is no label in column -1: .* the line has 1"),
        ("a.conll", "a B\n", 2, "line 1: there is no label in column 2"),
        ("a.conll", "a B\n", 0, "line 1: there is no label in column 0: column 0 is the word"),
        ("a.conll", "a\t\tB\n", 1, "line 1: the label is empty"),
        *(("a.conll", "a B\n", column, "must be a number; got") for column in ("upos", "²", "--1", "9" * 5000)),
        ("a.tsv", "pos\ta b\nneg c d\n", None, r"line 2: wanted two columns, .*; got 1: neg c d"),
        ("a.tsv", "pos\ta\tb\n", None, r"line 1: wanted two columns, .*; got 3: pos \| a \| b"),
        ("a.tsv", "pos\ta\n", 2, r"must be 0 \(label<TAB>sentence\) or 1 \(the reverse\); got 2"),
        ("a.tsv", "pos\ta\n", "x", "has no column 'x'; it has: pos, a"),
        *(
            (name, text, None, "contains no sentence; every split needs at least one")
            for name, text in (("a.tsv", "label\tsentence\n"), ("a.conllu", ""), ("a.conll", "\n\n"))
        ),
    ],
)
def test_what_does_not_fit_names_file_and_line(tmp_path, name, text, column, words):
    with pytest.raises(ElmoFastError, match=rf"{name}.*{words}") as error:
        read_examples(write(tmp_path, name, text), column=column)
    assert len(str(error.value)) < 400


def test_a_word_number_of_thousands_of_digits_is_refused_in_short(tmp_path):
    """Python makes no number of it; leading zeros are none of its business."""
    line = "\tThe\tthe\tDET" + 6 * "\t_" + "\n"
    with pytest.raises(ElmoFastError, match=r"a\.conllu, line 2: wanted the word number 2 .*; got '1{39};") as error:
        read_examples(write(tmp_path, "a.conllu", "1" + line + "1" * 5000 + line))
    assert len(str(error.value)) < 400
    assert len(read_examples(write(tmp_path, "a.conllu", "01" + line + "002" + line))[0].words) == 2


def test_formats_by_suffix_gzip_and_by_name(tmp_path):
    """The suffix without .gz determines the format; an unknown one asks; a text has words alone."""
    with gzip.open(tmp_path / "a.conllu.gz", "wt", encoding="utf-8") as file:
        file.write(CONLLU)
    assert len(read_examples(tmp_path / "a.conllu.gz")) == 2
    path = write(tmp_path, "a.data", "one two\n\nthree\n")
    with pytest.raises(
        ElmoFastError,
        match=r"a\.data: the suffix does not tell the format .* give format=conllu, columns, .* to predict, text",
    ):
        read_examples(path)
    with pytest.raises(
        ElmoFastError, match="format must be one of auto, conllu, columns, tsv, csv, jsonl, parquet, text; got 'xml'"
    ):
        read_examples(path, "xml")
    assert read_examples(path, "text") == [Example(["one", "two"], []), Example(["three"], [])]
    with pytest.raises(ElmoFastError, match="no column of labels"):
        read_examples(path, "text", 1)


def test_what_is_written_is_read_back(tmp_path):
    tags = [Example(["a", "b c"], ["X", "Y"]), Example(["d"], ["Z"])]
    write_examples(tmp_path / "a.conll", tags)
    assert read_examples(tmp_path / "a.conll") == tags
    write_examples(tmp_path / "a.conll.gz", tags)
    assert read_examples(tmp_path / "a.conll.gz") == tags
    whole = [Example(["a", "b"], ["yes"]), Example(["c"], ["no"])]
    write_examples(tmp_path / "a.tsv", whole)
    assert read_examples(tmp_path / "a.tsv") == whole


@pytest.mark.parametrize(
    ("name", "example", "words"),
    [
        ("a.conll", Example(["a\tb"], ["X"]), r"'a\\tb' cannot be written as columns"),
        ("a.conll", Example(["a", "b"], ["X"]), "labels must be one per word; got 2 words, 1 labels"),
        ("a.tsv", Example(["a b"], ["X"]), "'a b' cannot be written as tsv"),
        ("a.tsv", Example(["a", "b"], ["X", "Y"]), "labels must be one for the sentence; got 2 words, 2 labels"),
        ("a.conllu", Example(["a"], ["X"]), "got format 'conllu'"),
    ],
)
def test_what_cannot_be_written_leaves_the_file_alone(tmp_path, name, example, words):
    path = write(tmp_path, name, "as it was\n")
    with pytest.raises(ElmoFastError, match=words):
        write_examples(path, [example])
    assert path.read_text() == "as it was\n"
