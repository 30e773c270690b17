"""One step of pretraining, original architecture, batch 8 x 20, 8192 negatives, 100,000 words: ours and plain torch.

Plain torch is the reference backend of every op in float32, a dense gradient and a dense AdaGrad update of the softmax
table. All sides start from equal weights, read the same batches, draw the same negatives and carry their own state.
"""

from collections import Counter
from collections.abc import Iterator

import torch

from benchmarks import texts
from benchmarks.architectures import ORIGINAL_FILTERS, SIZES
from benchmarks.cases import Settings
from benchmarks.results import Report, faster, row, significant
from benchmarks.timing import in_turn, seconds
from benchmarks.trainers import reading
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.training_step import Step, StepResult, Words

ROWS, STEPS = 8, 20
SIDES = {
    "plain torch, float32": {"precision": "float32", "backend": "reference", "sparse": False},
    "elmo_fast, float32": {"precision": "float32", "backend": "native", "sparse": True},
    "elmo_fast, bfloat16": {"precision": "bfloat16", "backend": "native", "sparse": True},
}
GOALS = {"elmo_fast, float32": 3.0, "elmo_fast, bfloat16": 6.0}


def run(settings: Settings) -> Report:
    """Rows "ms" per step; the error is of the losses of all steps, both directions."""
    torch.set_num_threads(1)
    words, negatives = (1000, 64) if settings.quick else (100_000, 8192)
    text = texts.read(settings.text)
    plan = {"batch": f"{ROWS} x {STEPS}", "negatives": negatives, "words": words, "dropout": 0.1}
    report = Report(notes={"step": plan, "text": text.source})
    batches = list(batches_of(text.sentences, words))
    sides = {name: Stepper(batches, words, negatives, settings.quick, **how) for name, how in SIDES.items()}
    taken = in_turn({name: side.milliseconds for name, side in sides.items()}, rounds=2 if settings.quick else 12)
    rows = [row("one step", name, values, threads=1, unit="ms") for name, values in taken.items()]
    plain = rows[0]
    for mine in rows[1:]:
        faster(mine, plain, GOALS[mine.side])
        pairs = zip(sides[mine.side].losses, sides[plain.side].losses, strict=True)
        mine.error, mine.error_to = significant(max(abs(a - b) for a, b in pairs), 2), "plain torch's losses"
    report.rows = rows
    return report


def batches_of(sentences: list[list[str]], words: int) -> Iterator[Words]:
    """Windows of the text, ROWS x STEPS words each; a word's id is its rank in the text."""
    running = [word for sentence in sentences for word in sentence]
    ranks = {word: i % words for i, (word, _) in enumerate(Counter(running).most_common())}
    count = ROWS * STEPS
    for start in range(0, min(len(running), 20 * 2 * count) - 2 * count, 2 * count):
        yield reading(running[start : start + count], running[start + count : start + 2 * count], ranks, ROWS)


class Stepper:
    """One side: a model with weights of a fixed seed, its optimizer, and how far it is in the batches."""

    def __init__(
        self,
        batches: list[Words],
        words: int,
        negatives: int,
        quick: bool,
        *,
        precision: str,
        backend: str,
        sparse: bool,
    ) -> None:
        size = SIZES["small"] if quick else SIZES["original"]
        model = ModelConfig(
            filters=[list(each) for each in (size["filters"] if quick else ORIGINAL_FILTERS)],
            dim=size["cell"],
            projection_dim=size["proj"],
            n_highway=1 if quick else 2,
        )
        torch.manual_seed(0)
        options = options_of(model, words, n_negative_samples_batch=negatives)
        self.model = LanguageModel(options, precision=precision, backend=backend)
        self.update = Step(self.model, AdaGrad(self.model.parameters()), clip_norm=10.0, sparse=sparse)
        self.batches = batches
        self.state, self.taken = None, 0
        self.losses: list[float] = []

    def step(self) -> StepResult:
        """The next step; dropout masks come from the step's number, so that all sides draw the same."""
        result = self.update(self.batches[self.taken % len(self.batches)], self.state, self.taken)
        self.state, self.taken = result.state, self.taken + 1
        self.losses += result[:2]
        return result

    def milliseconds(self) -> float:
        """The time of the next step."""
        return 1000 * seconds(self.step)
