"""options.json and vocab.txt: values of other types, damaged text; what is accepted is written and read back alike."""

import json
import random

from elmo_fast.checkpoints import read_options, write_options
from elmo_fast.text import Vocabulary
from tests.fuzz import folders
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.weights import make_weights

WORDS = "<S>\n</S>\n<UNK>\nthe\ncat\n!!!MAXTERMID\nRésumé\nthe\n".encode()


@folders.valid
def valid(folder):
    return make_weights(folder, softmax=7)[0]


def case(rng: random.Random) -> None:
    if rng.random() < 0.2:
        _vocabulary(rng)
        return
    path = folders.copied(valid())
    text = json.loads(path.read_text())
    if rng.random() < 0.3:
        text = {"format": "elmo_fast", "format_version": 1, "options": text}
    path.write_bytes(damaged_json(rng, json.dumps(text)))
    with may_refuse():
        options = read_options(path)
        write_options(path, options)
        if read_options(path) != options:
            raise Wrong("options.json: what was read and written is read otherwise")


def _vocabulary(rng):
    path = folders.fresh() / "vocab.txt"
    path.write_bytes(damaged(rng, WORDS))
    with may_refuse():
        vocabulary = Vocabulary.read(path)
        with may_refuse():
            vocabulary.write(path)
            if Vocabulary.read(path).words != vocabulary.words:
                raise Wrong("vocab.txt: what was read and written is read otherwise")
