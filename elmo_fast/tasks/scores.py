"""How good predicted labels are: accuracy, precision, recall and F1 per class, of labels or of spans."""

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elmo_fast.errors import ElmoFastError

_SPAN_TAG = re.compile(r"([BIMESLU])-(.*)|O", re.DOTALL)
# Also in lower case, which conlleval does not take for a tag of a span, but a reader does.
_LOOKS_LIKE_SPAN = re.compile(r"[BIMESLU]-.*", re.DOTALL | re.IGNORECASE)
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")

Span = tuple[str, int, int]
Sentences = Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of a split.

    accuracy: share of correct labels
    precision, recall, f1: over all spans (micro), or over all labels, where all three equal the accuracy
    macro_f1: mean of the classes' F1
    per_class: class -> precision, recall, f1, support (true count), ordered by name
    spans: whether classes are span types, else labels
    count: how many labels were compared
    """

    accuracy: float
    precision: float
    recall: float
    f1: float
    macro_f1: float
    per_class: dict[str, dict[str, float]]
    spans: bool
    count: int

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return dataclasses.asdict(self)

    def table(self) -> str:
        """Text to print: a line per class, then micro and macro averages (in percent) and the accuracy."""
        support = sum(row["support"] for row in self.per_class.values())
        micro = {"precision": self.precision, "recall": self.recall, "f1": self.f1, "support": support}
        width = max(map(len, ["accuracy", *self.per_class]))
        lines = [f"{'span' if self.spans else 'label':<{width}}  precision  recall      F1  support"]
        for name, row in [*self.per_class.items(), ("micro", micro)]:
            precision, recall, f1 = (100 * row[rate] for rate in ("precision", "recall", "f1"))
            lines += [f"{name:<{width}}  {precision:9.2f}  {recall:6.2f}  {f1:6.2f}  {row['support']:7.0f}"]
        lines += [f"{'macro':<{width}}  {'':9}  {'':6}  {100 * self.macro_f1:6.2f}"]
        lines += [f"{'accuracy':<{width}}  {100 * self.accuracy:.2f} of {self.count} labels"]
        return "\n".join(lines)


def tag_scores(gold: Sentences, predicted: Sentences, spans: bool | str = "auto") -> Scores:
    """Scores of predicted labels against the true ones.

        precision = right / predicted    recall = right / true    F1 = 2 right / (predicted + true)      0 where 0 / 0

    A span is right where its type and both its ends are. Spans begin and end by conlleval's rules (see spans_of). A
    sentence that is classified is a list of one label.

    Args:
        gold: the true labels of each sentence.
        predicted: the predicted ones, as many.
        spans: whether the labels are BIO, IOB, IOBES or BMES tags whose spans are scored; other tags then count as O in
            precision, recall and F1; "auto": if there are more tags like B-X and I-X than other tags except O, with a
            warning if there are both.

    Raises: ElmoFastError: other numbers of sentences or labels, none at all, or no tag of a span or O with spans=True.

    Source: Tjong Kim Sang and Buchholz 2000, CoNLL-2000, and its script conlleval.
    """
    if len(gold) != len(predicted):
        raise ElmoFastError(f"predicted must have {len(gold)} sentences, as gold has; got {len(predicted)}")
    for number, (true_tags, tags) in enumerate(zip(gold, predicted, strict=True)):
        if len(true_tags) != len(tags):
            raise ElmoFastError(f"predicted[{number}] must have {len(true_tags)} labels, as gold has; got {len(tags)}")
    if not any(gold):
        raise ElmoFastError("gold must have at least one label; got none")
    counts = Counter(tag for side in (gold, predicted) for sentence in side for tag in sentence)
    if isinstance(spans, str):
        spans = are_spans(counts)
        if (odd := odd_tags(counts)) and looks_like_spans(counts):
            how = counted_as(spans=spans)
            warnings.warn(f"tags {', '.join(map(repr, odd[:5]))} are not span tags; {how}: set spans", stacklevel=2)
    if spans and not counts.keys() - set(odd_tags(counts)):
        raise _no_span(next(iter(counts)))
    true, guessed, right = Counter[str](), Counter[str](), Counter[str]()  # of each class; right: both at one position
    for sides in zip(gold, predicted, strict=True):
        if spans:  # a tag that is none of a span counts as O
            a, b = (set(spans_of([tag if _SPAN_TAG.fullmatch(tag) else "O" for tag in tags])) for tags in sides)
        else:  # a label is a span of its own
            a, b = ({(tag, i, i) for i, tag in enumerate(tags)} for tags in sides)
        for counter, some in ((true, a), (guessed, b), (right, a & b)):
            counter.update(span[0] for span in some)
    classes = {name: _rates(true[name], guessed[name], right[name]) for name in sorted({*true, *guessed})}
    micro, count = _rates(true.total(), guessed.total(), right.total()), sum(map(len, gold))
    agree = sum(a == b for x, y in zip(gold, predicted, strict=True) for a, b in zip(x, y, strict=True))
    macro = sum(row["f1"] for row in classes.values()) / max(1, len(classes))
    rates = micro["precision"], micro["recall"], micro["f1"]
    return Scores(agree / count, *rates, macro, classes, bool(spans), count)


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans (type, first, last) of the tags of one sentence, by conlleval's rules, which forgive wrong tags.

    Between two tags that are not O a span ends and another begins where the type changes, before B, S or U, and after
    E, S, L or U; an I, M or E that follows O begins one. For BIO and IOB tags these are the rules of the script; for
    tags with E and S it has rules too, but none for S and none for B after E, which end a span here.

    Raises: ElmoFastError: a tag that is neither O nor one of B I M E S L U, a hyphen, and a type.
    """
    spans: list[Span] = []
    start, before = 0, ("O", "")
    for position, tag in enumerate([*tags, "O"]):
        if (match := _SPAN_TAG.fullmatch(tag)) is None:
            raise _no_span(tag)
        here = (match[1] or "O", match[2])
        if before[0] != "O" and (here[0] == "O" or here[1] != before[1] or here[0] in _BEGINS or before[0] in _ENDS):
            spans.append((before[1], start, position - 1))
            before = ("O", "")
        if here[0] != "O" and before[0] == "O":
            start = position
        before = here
    return spans


def _no_span(tag: str) -> ElmoFastError:
    return ElmoFastError(f"tags of spans must be O, B-X or I-X (or M-X, E-X, S-X, L-X, U-X); got {tag!r}")


def are_spans(counts: Mapping[str, int]) -> bool:
    """Whether tags (each with how often it occurs) are of spans: more are like B-X and I-X than other ones except O."""
    odd = sum(counts[tag] for tag in odd_tags(counts))
    return sum(counts.values()) - counts.get("O", 0) - odd > odd


def odd_tags(tags: Iterable[str]) -> list[str]:
    """Return the tags that are neither O nor one of a span."""
    return [tag for tag in tags if not _SPAN_TAG.fullmatch(tag)]


def looks_like_spans(tags: Iterable[str]) -> bool:
    """Whether some tag looks like one of a span."""
    return any(_LOOKS_LIKE_SPAN.fullmatch(tag) for tag in tags)


def counted_as(*, spans: bool) -> str:
    """Say what is scored where some tags are of spans and others are not."""
    return "they count as O in the F1 of spans" if spans else "so labels are scored by accuracy, not spans by F1"


def _rates(true: int, guessed: int, right: int) -> dict[str, float]:
    return {
        "precision": right / guessed if guessed else 0.0,
        "recall": right / true if true else 0.0,
        "f1": 2 * right / (true + guessed) if true + guessed else 0.0,
        "support": true,
    }
