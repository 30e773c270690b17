"""Words to character ids: `batch_to_ids` on batches of 1,000 sentences, one thread."""

import itertools
from collections.abc import Iterator

import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, measure
from benchmarks.timing import seconds
from elmo_fast import batch_to_ids


def run(settings: Settings) -> Report:
    """Rows "tokens/s"; the words of the text in order, and the same words all different (a number appended)."""
    torch.set_num_threads(1)
    text = texts.read(settings.text)
    report = Report(notes={"text": text.source})
    size = 200 if settings.quick else 1000
    batches = [text.sentences[i : i + size] for i in range(0, len(text.sentences) - size + 1, size)] or [text.sentences]
    distinct = [[[f"{word}{i}_{j}" for j, word in enumerate(s)] for i, s in enumerate(batch)] for batch in batches]
    for variant, chosen in (("running text", batches), ("every word different", distinct)):
        turns = itertools.cycle(chosen)

        def tokens_per_second(turns: Iterator[list[list[str]]] = turns) -> float:
            batch = next(turns)
            return sum(map(len, batch)) / seconds(lambda: batch_to_ids(batch))

        rounds = 5 if settings.quick else 40
        report.rows += measure(variant, {"elmo_fast": tokens_per_second}, rounds, unit="tokens/s")
    return report
