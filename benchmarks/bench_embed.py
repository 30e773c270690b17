"""Sentences to ELMo vectors with the original architecture: elmo_fast and AllenNLP 2.10.1 in turn, one thread."""

import json
import sys

import numpy as np
import pytest

from benchmarks import models
from benchmarks.elmo_worker import Worker
from benchmarks.machine import ROOT

PRECISIONS = ("float32", "bfloat16", "int8")
COMPARED = 4  # batches of 32 whose activations are compared
CARRIED = f"max difference when the state is carried over {COMPARED} batches of 32"


class Sides:
    """A process for each library and precision, the differences of their activations, and the text."""

    def __init__(self, folder, text, quick, peer_python):
        size = "small" if quick else "original"
        self.folder, self.sentences, self.workers = folder, text.sentences, {}
        options_file, weight_file = models.write_weights(size, folder)
        path = folder / "text.jsonl"
        path.write_text("".join(json.dumps(sentence) + "\n" for sentence in text.sentences), encoding="utf-8")
        options = {"options_file": str(options_file), "weight_file": str(weight_file), "text": str(path)}
        self.notes = {"text": text.source, "weights": f"random, architecture {size}", "cross-batch cache": "off"}
        if peer_python is not None:
            words = ["allennlp", json.dumps({**options, "keywords": {}})]
            worker = self.workers["AllenNLP"] = Worker(peer_python, words)
            self.notes["AllenNLP"] = worker.ask(do="about")["version"]
        for precision in PRECISIONS:
            words = ["elmo_fast", json.dumps({**options, "keywords": {"precision": precision, "cache_size": 0}})]
            worker = Worker(sys.executable, words, PYTHONPATH=str(ROOT))
            self.workers[f"elmo_fast, {precision}"] = worker
            self.notes[f"backends, {precision}"] = worker.ask(do="about")["backends"]
        self.reference = next(iter(self.workers))
        self.errors = self.differences(reset=True)
        carried = self.differences(reset=False)
        self.notes[CARRIED] = {
            name.removeprefix("elmo_fast, "): f"{error:.1e}" for name, error in carried.items() if error
        }

    def differences(self, *, reset):
        """max |difference| of each side to the first, all layers.

        reset: every batch starts from zero states; otherwise the state is carried on and with it what rounding has
        done, which the LSTMs amplify from batch to batch, AllenNLP's as elmo_fast's.
        """
        activations = {}
        for name, worker in self.workers.items():
            saved = []
            for i in range(min(COMPARED, len(self.sentences) // 32)):
                path = self.folder / "activations.bin"
                worker.ask(do="save", first=32 * i, size=32, path=str(path), reset=reset or i == 0)
                saved.append(np.fromfile(path, dtype="float32"))
            activations[name] = np.concatenate(saved)
        return {name: float(np.abs(each - activations[self.reference]).max()) for name, each in activations.items()}


@pytest.fixture(scope="module")
def sides(tmp_path_factory, text, quick, peer_python):
    sides = Sides(tmp_path_factory.mktemp("embed"), text, quick, peer_python)
    yield sides
    for worker in sides.workers.values():
        worker.close()


@pytest.mark.turns(24)
@pytest.mark.parametrize("batch", [32, 1])
@pytest.mark.parametrize("side", ["AllenNLP", *(f"elmo_fast, {precision}" for precision in PRECISIONS)])
def bench_embed(timed, sides, batch, side, turn):
    if side not in sides.workers:
        pytest.skip("no Python with AllenNLP: --peer-python, ELMO_FAST_PEER_PYTHON; CONTRIBUTING.md says how")
    first = turn * batch % (len(sides.sentences) - batch)
    tokens = sum(map(len, sides.sentences[first : first + batch]))
    request = lambda: sides.workers[side].ask(do="time", first=first, size=batch)  # noqa: E731
    for name, value in sides.notes.items():
        timed.note(name, value)
    if side != sides.reference:
        timed.error(sides.errors[side], sides.reference)
    timed(f"batches of {batch}", request, amount=tokens, unit="tokens/s", warmup=turn == 0, against="AllenNLP")
