"""One step of pretraining, original architecture, batch 8 x 20, 8192 negatives, 100,000 words: ours and plain torch.

Plain torch is the reference backend of every op in float32, a dense gradient of the softmax table and torch's own fused
AdaGrad over whole tensors; ELMO_FAST_ISA=avx2 holds torch to AVX2 as well. All sides start from equal weights, read the
same batches, draw the same negatives and carry their own state.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import torch

from benchmarks import texts
from benchmarks.architectures import SIZES
from benchmarks.cases import Settings
from benchmarks.machine import instruction_set
from benchmarks.results import Report, faster, measure, significant
from benchmarks.timing import milliseconds
from benchmarks.trainers import reading
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.step.training_step import Step

ROWS, STEPS = 8, 20
SIDES = {
    "plain torch, float32": {"precision": "float32", "backend": "reference", "sparse": False},
    "elmo_fast, float32": {"precision": "float32", "backend": "native", "sparse": True},
    "elmo_fast, bfloat16": {"precision": "bfloat16", "backend": "native", "sparse": True},
}
# Instruction set -> how many times as fast as plain torch.
GOALS = {
    "avx2": {"elmo_fast, float32": 2.5},
    "avx512_bf16": {"elmo_fast, float32": 3.3, "elmo_fast, bfloat16": 5.5},
    "amx": {"elmo_fast, float32": 3.3, "elmo_fast, bfloat16": 8.0},
}


def run(settings: Settings) -> Report:
    """Rows "ms" per step; the error is of the losses of all steps, both directions."""
    torch.set_num_threads(1)
    words, negatives = (1000, 64) if settings.quick else (100_000, 8192)
    text = texts.read(settings.text)
    plan = {"batch": f"{ROWS} x {STEPS}", "negatives": negatives, "words": words, "dropout": 0.1}
    report = Report(notes={"step": plan, "text": text.source})
    batches = list(batches_of(text.sentences, words))
    sides = {name: Stepper(batches, words, negatives, settings.quick, **how) for name, how in SIDES.items()}
    timed = {name: milliseconds(side.step) for name, side in sides.items()}
    plain, *ours = report.rows = measure("one step", timed, 2 if settings.quick else 12, unit="ms")
    for mine in ours:
        faster(mine, plain, GOALS.get(instruction_set(), {}).get(mine.side))
        pairs = zip(sides[mine.side].losses, sides[plain.side].losses, strict=True)
        mine.error, mine.error_to = significant(max(abs(a - b) for a, b in pairs), 2), "plain torch's losses"
    return report


def batches_of(sentences: list[list[str]], words: int) -> Iterator[Words]:
    """Windows of the text, ROWS x STEPS words each; a word's id is its rank in the text."""
    running = [word for sentence in sentences for word in sentence]
    ranks = {word: i % words for i, (word, _) in enumerate(Counter(running).most_common())}
    count = ROWS * STEPS
    for start in range(0, min(len(running), 20 * 2 * count) - 2 * count, 2 * count):
        yield reading(running[start : start + count], running[start + count : start + 2 * count], ranks, ROWS)


def optimizer_of(model: LanguageModel, backend: str) -> torch.optim.Optimizer:
    """The same AdaGrad: ours, or torch's own for plain torch."""
    if backend == "native":
        return AdaGrad(model.parameters(), 0.2)
    return torch.optim.Adagrad(model.parameters(), 0.2, eps=0.0, initial_accumulator_value=1.0, fused=True)


class Stepper:
    """One side: a model with weights of a fixed seed, its optimizer, and how far it is in the batches."""

    def __init__(
        self, batches: list[Words], words: int, negatives: int, quick: bool, *, sparse: bool, **how: str
    ) -> None:
        size = SIZES["small" if quick else "original"]
        model = ModelConfig(
            filters=[list(each) for each in size["filters"]],
            dim=size["cell"],
            projection_dim=size["proj"],
            n_highway=size.get("n_highway", 2),
        )
        torch.manual_seed(0)
        self.model = LanguageModel(options_of(model, words, n_negative_samples_batch=negatives), **how)
        self.update = Step(self.model, optimizer_of(self.model, how["backend"]), clip_norm=10.0, sparse=sparse)
        self.batches = itertools.cycle(batches)
        self.state, self.taken = None, 0
        self.losses: list[float] = []

    def step(self) -> None:
        """The next step; dropout masks come from the step's number, so that all sides draw the same."""
        result = self.update(next(self.batches), self.state, self.taken)
        self.state, self.taken = result.state, self.taken + 1
        self.losses += result[:2]
