"""Words to character ids: `batch_to_ids` on batches of 1,000 sentences, one thread."""

import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, row
from benchmarks.timing import in_turn, seconds
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
        turn = iter(range(10**9))

        def rate(chosen: list = chosen, turn: object = turn) -> float:
            batch = chosen[next(turn) % len(chosen)]  # type: ignore[call-overload]
            return sum(map(len, batch)) / seconds(lambda: batch_to_ids(batch))

        values = in_turn({"elmo_fast": rate}, rounds=5 if settings.quick else 40)["elmo_fast"]
        report.rows.append(row(variant, "elmo_fast", values, threads=1, unit="tokens/s"))
    return report
