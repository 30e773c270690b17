"""Sentences to ELMo vectors with the original architecture: elmo_fast and AllenNLP 2.10.1 in turn, one thread."""

import json
import sys

import numpy as np
import pytest

from benchmarks.elmo_worker import Worker
from benchmarks.inputs import write_weights
from benchmarks.machine import ROOT

PRECISIONS = ("float32", "bfloat16", "int8")
COMPARED = 4  # batches of 32 whose activations are compared
CARRIED = f"max difference when the state is carried over {COMPARED} batches of 32"


def differences(workers, count, path, *, reset):
    """Return max |difference| of each side to the first over batches of 32, all layers.

    reset: every batch starts from zero states; otherwise the state is carried on and with it what rounding has done,
    which the LSTMs amplify from batch to batch, AllenNLP's as elmo_fast's.
    """
    activations = {}
    for name, worker in workers.items():
        saved = []
        for i in range(count):
            worker.ask(do="save", first=32 * i, size=32, path=str(path), reset=reset or i == 0)
            saved.append(np.fromfile(path, dtype="float32"))
        activations[name] = np.concatenate(saved)
    first = next(iter(activations.values()))
    return {name: float(np.abs(each - first).max()) for name, each in activations.items()}


@pytest.fixture(scope="module")
def sides(tmp_path_factory, text, quick, request):
    """A process for each library and precision, the differences of their activations, notes."""
    folder, size = tmp_path_factory.mktemp("embed"), "small" if quick else "original"
    options_file, weight_file = write_weights(size, folder)
    path = folder / "text.jsonl"
    path.write_text("".join(json.dumps(sentence) + "\n" for sentence in text.sentences), encoding="utf-8")
    options = {"options_file": str(options_file), "weight_file": str(weight_file), "text": str(path)}
    notes = {"text": text.source, "weights": f"random, architecture {size}", "cross-batch cache": "off"}
    workers = {}
    if (peer := request.config.getoption("peer_python")) is not None:
        worker = workers["AllenNLP"] = Worker(peer, ["allennlp", json.dumps({**options, "keywords": {}})])
        notes["AllenNLP"] = worker.ask(do="about")["version"]
    for precision in PRECISIONS:
        words = ["elmo_fast", json.dumps({**options, "keywords": {"precision": precision, "cache_size": 0}})]
        workers[f"elmo_fast, {precision}"] = Worker(sys.executable, words, PYTHONPATH=str(ROOT))
    for precision in PRECISIONS:
        notes[f"backends, {precision}"] = workers[f"elmo_fast, {precision}"].ask(do="about")["backends"]
    compared = workers, 1 if quick else min(COMPARED, len(text.sentences) // 32), folder / "activations.bin"
    errors, carried = differences(*compared, reset=True), differences(*compared, reset=False)
    notes[CARRIED] = {name.removeprefix("elmo_fast, "): f"{error:.1e}" for name, error in carried.items() if error}
    yield workers, errors, notes
    for worker in workers.values():
        worker.close()


@pytest.mark.turns(24)
@pytest.mark.parametrize("batch", [32, 1])
@pytest.mark.parametrize("side", ["AllenNLP", *(f"elmo_fast, {precision}" for precision in PRECISIONS)])
def bench_embed(timed, sides, text, batch, side, turn):
    workers, errors, notes = sides
    if side not in workers:
        pytest.skip("no Python with AllenNLP: --peer-python, ELMO_FAST_PEER_PYTHON; CONTRIBUTING.md says how")
    first = turn * batch % (len(text.sentences) - batch)
    tokens = sum(map(len, text.sentences[first : first + batch]))
    request = lambda: workers[side].ask(do="time", first=first, size=batch)  # noqa: E731
    for name, value in notes.items():
        timed.note(name, value)
    if side != (reference := next(iter(workers))):
        timed.error(errors[side], reference)
    timed(f"batches of {batch}", request, amount=tokens, unit="tokens/s", warmup=turn == 0, against="AllenNLP")
