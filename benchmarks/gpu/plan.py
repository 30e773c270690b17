"""The sections in order of value, and how long each may take: together no more than TOTAL."""

from collections.abc import Iterable
from typing import NamedTuple

TOTAL = 530.0  # seconds: below nine minutes


class Plan(NamedTuple):
    """seconds: what a section may take when all those after it take theirs; ceilings: whether it needs them."""

    seconds: float
    what: str
    ceilings: bool = True


SECTIONS = {
    "build": Plan(110, "the C++ extension, built in place where it is missing", ceilings=False),
    "ceilings": Plan(15, "bandwidth of a copy, rate of a matrix product", ceilings=False),
    "check": Plan(40, "every GPU kernel held to plain torch, as at its first use", ceilings=False),
    "tests": Plan(60, "the tests of ops and modules, on the GPU", ceilings=False),
    "lstm": Plan(75, "one layer of the projected LSTM against cuDNN, an eager loop and torch.compile"),
    "embed": Plan(40, "sentences to activations against AllenNLP's biLM"),
    "encoder": Plan(45, "the character encoder, forward + backward"),
    "softmax": Plan(35, "the losses over a sample or a tree of words, forward + backward"),
    "mix": Plan(15, "the scalar mix against the bandwidth of a copy"),
    "adagrad": Plan(15, "the update of all weights, and of rows"),
    "train_step": Plan(35, "one step of pretraining"),
    "tune": Plan(20, "what elmo-fast tune measures and keeps for the card", ceilings=False),
    "sanitizer": Plan(25, "compute-sanitizer over every GPU kernel", ceilings=False),
}
ORDER = tuple(SECTIONS)


def chosen(names: Iterable[str] | None) -> list[str]:
    """The sections to run, in order: those named and what they need (the build; ceilings of the same run), or all."""
    if names is None:
        return list(ORDER)
    wanted = {"build", *names}
    if any(SECTIONS[name].ceilings for name in wanted):
        wanted.add("ceilings")
    return [name for name in ORDER if name in wanted]


def allowed(name: str, sections: list[str], left: float) -> float:
    """Seconds that `name` may take: all that is left but the shares of those after it, and at least its own share."""
    later = sum(SECTIONS[each].seconds for each in sections[sections.index(name) + 1 :])
    return min(left, max(SECTIONS[name].seconds, left - later))
