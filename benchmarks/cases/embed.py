"""Sentences to ELMo vectors with the original architecture: elmo_fast and AllenNLP 2.10.1 in turn, one thread."""

import functools
import json
import pathlib
import sys
import tempfile

import numpy as np

from benchmarks import architectures, texts
from benchmarks.cases import Settings
from benchmarks.machine import instruction_set
from benchmarks.results import Report, Row, faster, measure, significant
from benchmarks.workers import Worker, elmo_worker

PRECISIONS = ("float32", "bfloat16", "int8")
# Instruction set -> batch -> how many times as fast as AllenNLP each precision should be.
GOALS = {
    "avx2": {32: (4.0, 4.5, 6.0), 1: (4.0, 7.0, 11.0)},
    "avx512_bf16": {32: (5.0, 9.0, 16.0), 1: (5.0, 9.0, 15.0)},
    "amx": {32: (4.5, 15.0, 24.0), 1: (3.0, 6.0, 11.0)},
}
NO_PEER = "AllenNLP: no interpreter that has it (--peer-python, ELMO_FAST_PEER_PYTHON; CONTRIBUTING.md tells how)"
COMPARED = 4  # batches whose activations are compared


def run(settings: Settings) -> Report:
    """Rows "tokens/s" for batches of 32 and of 1; error: max |difference| of all layers to AllenNLP's."""
    text = texts.read(settings.text)
    size = "small" if settings.quick else "original"
    report = Report(notes={"text": text.source, "weights": f"random, architecture {size}", "cross-batch cache": "off"})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options_file, weight_file = architectures.write(size, folder)
        (folder / "text.jsonl").write_text("".join(json.dumps(s) + "\n" for s in text.sentences), encoding="utf-8")
        files = {"options_file": options_file, "weight_file": weight_file, "text": folder / "text.jsonl"}
        options = {name: str(path) for name, path in files.items()}
        workers: dict[str, Worker] = {}
        try:
            start_workers(workers, options, settings, report)
            errors = differences(workers, folder, len(text.sentences), reset=True)
            carried = differences(workers, folder, len(text.sentences), reset=False)
            report.notes[f"max difference when the state is carried over {COMPARED} batches of 32"] = {
                name: f"{error:.1e}" for name, error in carried.items() if error
            }
            for batch in (32, 1):
                rounds = (3 if settings.quick else 8) * (1 if batch == 32 else 3)
                report.rows += timed(workers, batch, rounds, errors, len(text.sentences))
        finally:
            for worker in workers.values():
                worker.close()
    return report


def start_workers(workers: dict[str, Worker], options: dict, settings: Settings, report: Report) -> None:
    """Adds to `workers` the peer (or says why it is absent) and one of ours per precision."""
    if settings.peer_python is None:
        report.skipped.append(NO_PEER)
    else:
        worker = workers["AllenNLP"] = elmo_worker("allennlp", settings.peer_python, 1, {**options, "keywords": {}})
        report.notes["AllenNLP"] = worker.ask(do="about")["version"]
    for precision in PRECISIONS:
        keywords = {"precision": precision, "cache_size": 0}
        worker = workers[precision] = elmo_worker("elmo_fast", sys.executable, 1, {**options, "keywords": keywords})
        report.notes[f"backends, {precision}"] = worker.ask(do="about")["backends"]


def differences(workers: dict[str, Worker], folder: pathlib.Path, available: int, *, reset: bool) -> dict[str, float]:
    """max |difference| of each of ours to AllenNLP (else to our float32), all layers, in COMPARED batches of 32.

    reset: every batch starts from zero states; else the state is carried on, and with it what rounding has done: the
    LSTMs amplify it from batch to batch, AllenNLP's as ours.
    """
    activations = {}
    for name, worker in workers.items():
        saved = []
        for i in range(min(COMPARED, available // 32)):
            path = folder / f"{name}.bin"
            worker.ask(do="save", first=32 * i, size=32, path=str(path), reset=reset or i == 0)
            saved.append(np.fromfile(path, dtype="float32"))
        activations[name] = np.concatenate(saved)
    truth = next(iter(activations.values()))
    return {name: significant(float(np.abs(mine - truth).max()), 2) for name, mine in activations.items()}


def timed(workers: dict[str, Worker], batch: int, rounds: int, errors: dict[str, float], available: int) -> list[Row]:
    """One row per worker; in every round all of them embed the same sentences, one batch after another."""

    def tokens_per_second(worker: Worker, turn: list[int]) -> float:
        turn[0] += 1
        answer = worker.ask(do="time", first=(turn[0] * batch) % (available - batch), size=batch)
        return answer["tokens"] / answer["seconds"]

    sides = {name: functools.partial(tokens_per_second, worker, [-1]) for name, worker in workers.items()}
    goals = dict(zip(PRECISIONS, GOALS.get(instruction_set(), {}).get(batch, ()), strict=False))
    peer, *ours = measure(f"batches of {batch}", sides, rounds, unit="tokens/s")
    for name, each in zip(workers, [peer, *ours], strict=True):
        each.side = name if name == "AllenNLP" else f"elmo_fast, {name}"
        if each is not peer:
            each.error, each.error_to = errors[name], peer.side
            faster(each, peer, goals.get(name) if peer.side == "AllenNLP" else None)
    return [peer, *ours]
