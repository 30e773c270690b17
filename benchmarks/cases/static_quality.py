"""GloVe beside gensim's skip-gram on the same text: analogies and similarity, three seeds each."""

import os
import pathlib
from collections.abc import Callable

from benchmarks.cases import Settings
from benchmarks.results import Report, row
from benchmarks.texts import DEFAULT
from elmo_fast.static import Vectors, evaluate_analogies, evaluate_similarity, train_glove, train_word2vec
from elmo_fast.static.evaluation import bundled

SEEDS = (1, 2, 3)
DIMENSION, MIN_COUNT = 100, 5
SKIP_GRAM = {"window": 5, "epochs": 5}
GLOVE = {"window": 10, "epochs": 25, "x_max": 10.0}


def run(settings: Settings) -> Report:
    """Rows of scores, one value a seed; p20 and p80 tell how far seeds differ."""
    beside = sorted(DEFAULT.parent.glob("train-*.txt"))
    pattern = os.fspath(settings.text or DEFAULT.parent / "train-*.txt")
    seeds = SEEDS[: 1 if settings.quick else None]
    notes = {"text": f"{len(beside)} files of classics" if settings.text is None else pathlib.Path(pattern).name}
    report = Report(notes={**notes, "dimension": DIMENSION, "skip-gram": SKIP_GRAM, "GloVe": GLOVE, "seeds": seeds})
    sides: dict[str, Callable[[int], Vectors]] = {
        "elmo_fast GloVe": lambda seed: train_glove(
            pattern, dimension=DIMENSION, min_count=MIN_COUNT, threads=1, seed=seed, **GLOVE
        ),
        "gensim skip-gram": lambda seed: train_word2vec(
            pattern, dimension=DIMENSION, min_count=MIN_COUNT, seed=seed, **SKIP_GRAM
        ),
    }
    taken: dict[tuple[str, str], list[float]] = {}
    for seed in seeds:
        for side, train in sides.items():
            for variant, value in scores(train(seed)).items():
                taken.setdefault((variant, side), []).append(value)
                print(f"  seed {seed}  {side:18} {variant:20} {value:.4g}", flush=True)
    for (variant, side), values in sorted(taken.items()):
        unit = "% right" if variant.startswith("analogies") else "Spearman"
        report.rows.append(row(variant, side, values, threads=1, unit=unit))
    return report


def scores(vectors: Vectors) -> dict[str, float]:
    """Shares of right answers among questions whose words all have vectors, and correlations."""
    found = evaluate_analogies(vectors)
    parts = {f"analogies, {part.name}": part for part in (found.semantic, found.syntactic, found.total)}
    right = {name: 100 * part.correct / max(part.asked, 1) for name, part in parts.items()}
    pairs = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
    return right | {name: evaluate_similarity(vectors, bundled(file)).spearman for name, file in pairs.items()}
