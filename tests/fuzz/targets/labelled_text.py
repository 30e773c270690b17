"""CoNLL-U, columns, TSV, tables and plain text, gzip among them: damaged lines; sentences name the file."""

import gzip
import random

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import read_examples
from elmo_fast.text import read_lines
from tests.fuzz import folders
from tests.fuzz.damage import damaged
from tests.fuzz.judge import Wrong, may_refuse

CONLLU = """# text = Das ist gut
1-2\tDas\t_\t_\t_\t_\t_\t_\t_\t_
1\tDa\tda\tADV\t_\t_\t0\troot\t_\t_
2\ts\tdas\tPRON\t_\t_\t1\tnsubj\t_\t_
2.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_
3\tgut\tgut\tADJ\t_\t_\t1\tx\t_\t_

1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_
"""
COLUMNS = "-DOCSTART- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
TEXTS = {
    "conllu": CONLLU,
    "conll": COLUMNS.replace(" ", "\t"),
    "col": COLUMNS,
    "tsv": "label\tsentence\ngood\ta fine film\nbad\ta dull film\n",
    "csv": 'id,text,label\n1,"a ""fine"" film",good\n2,a dull film,bad\n',
    "jsonl": '{"text": "a fine film", "label": "good"}\n{"text": ["dull"], "label": 1}\n',
    "text": "the cat sat .\n\nRésumé of a dog\n",
}


def case(rng: random.Random) -> None:
    kind = rng.choice(sorted(TEXTS))
    data = damaged(rng, TEXTS[kind].encode())
    packed = rng.random() < 0.2
    if packed:
        data = gzip.compress(data, 1)
        data = damaged(rng, data) if rng.random() < 0.7 else data
    path = folders.fresh() / f"in.{kind}{'.gz' * packed}"
    path.write_bytes(data)
    column = rng.choice((None, None, None, -1, 0, 1, 3, 99, "xpos", "", "nonsense", "-1", "²"))
    format = rng.choice(("auto", "conllu", "columns", "tsv", "csv", "jsonl", "text"))
    for read in (lambda: read_examples(path, format, column), lambda: list(read_lines(path))):
        with may_refuse():
            try:
                read()
            except ElmoFastError as error:
                if "column" not in str(error) and "format" not in str(error) and path.name not in str(error):
                    raise Wrong(f"labelled_text, a sentence without the file's name: {error}") from error
                raise
