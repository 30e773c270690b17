"""The data of a task: files, the fraction of train that is used, labels, and batches in their order."""

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast._runtime.progress import Progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.cache import LayerCache, cached_splits
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.features import ElmoFeatures
from elmo_fast.tasks.formats import (
    MAY_BE_EMPTY,
    PER_WORD,
    UNSPECIFIED,
    Example,
    conllu_column,
    format_of,
    read_examples,
    text_rows,
    texts_of,
)
from elmo_fast.tasks.scores import are_spans, counted_as, looks_like_spans, odd_tags
from elmo_fast.text.tokenizers import RAW_TEXT_ADVICE, first_raw_line

UNSEEN = -100
"""The number of a label that training has not seen: no loss (torch's `ignore_index`), and wrong in every score."""


class Labels:
    """The labels of a training split, numbered from 0.

    names: distinct, in the order of their numbers.

    Raises: ElmoFastError: no names, or one twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.index = {name: number for number, name in enumerate(self.names)}
        if not self.names or len(self.index) < len(self.names):
            raise ElmoFastError(f"labels must be one or more, all different; got {self.names or 'none'}")

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Labels":
        """Those that occur in `examples`, in the order of their names."""
        return cls(sorted({label for example in examples for label in example.labels}))

    def __len__(self) -> int:
        return len(self.names)

    def ids(self, labels: Iterable[str]) -> list[int]:
        """Return the number of each label, UNSEEN for those that are not among the names."""
        get = self.index.get
        return [get(label, UNSEEN) for label in labels]

    def of_ids(self, ids: Iterable[int]) -> list[str]:
        """Return the label of each number."""
        return [self.names[number] for number in ids]

    def unseen(self, examples: Sequence[Example], split: str) -> str | None:
        """One sentence on the labels of a split that are not among the names, or None where there are none.

        split: how the split is called in that sentence
        """
        labels = [label for example in examples for label in example.labels]
        strange = Counter(label for label in labels if label not in self.index)
        some = ", ".join(f"{label} ({count})" for label, count in strange.most_common(5))
        what = f"{strange.total()} of {len(labels)} labels do not occur in the training data: {some}"
        return f"{split}: {what}; {len(strange)} different; they give no loss and count as wrong" if strange else None


@dataclasses.dataclass(frozen=True)
class TaskData:
    """What training reads.

    files: split ("train", "dev", "test") -> all its sentences; kept: which of train are used; labels: of those; spans:
    whether spans are scored; notes: on raw text, and on labels with which scores mean less than they seem to.
    """

    files: dict[str, list[Example]]
    kept: list[int]
    labels: Labels
    spans: bool
    notes: list[str]

    @property
    def train(self) -> list[Example]:
        """The training sentences that are used."""
        return [self.files["train"][index] for index in self.kept]


def read_data(config: TaskConfig) -> TaskData:
    """Read the files that a configuration names.

    Raises ElmoFastError where a file is empty, does not fit its format or has not the labels that the task needs.
    """
    paths = {"train": config.train_path, "dev": config.dev_path, "test": config.test_path}
    files = {split: read_labelled(path, config) for split, path in paths.items() if path is not None}
    subset = shared_subset(len(files["train"]), config.train_share, config.seed)
    labels = Labels.of(files["train"][index] for index in subset)
    spans = scores_spans(config, Counter(label for example in files["train"] for label in example.labels))
    notes = [raw_text_note(files["train"], config.train_path, config)]
    notes += [labels.unseen(files[split], split) for split in files if split != "train"]
    for split, examples in files.items():
        notes += doubts_about(examples, str(paths[split]), config, spans=spans)
    return TaskData(files, subset, labels, spans, [note for note in notes if note])


def scores_spans(config: TaskConfig, tags: Mapping[str, int]) -> bool:
    """Return whether the score is the F1 of spans; tags: those of training, with how often each occurs."""
    return config.task == "tag" and (are_spans(tags) if config.metric == "auto" else config.metric == "spans")


def doubts_about(examples: Sequence[Example], path: str, config: TaskConfig, *, spans: bool) -> Iterator[str]:
    """Yield sentences on labels of a file with which its score means less than it seems to.

    spans: whether spans are scored.
    """
    counts = Counter(label for example in examples for label in example.labels)
    odd, total, is_conllu = odd_tags(counts), counts.total(), format_of(path, config.format) == "conllu"

    def first(labels: list[str]) -> str:
        """Name the first sentence that has one of the labels, and say how many have."""
        number = next(number for number, each in enumerate(examples, 1) if not set(labels).isdisjoint(each.labels))
        return f"{path}, sentence {number} ({sum(counts[label] for label in labels)} of {total} labels)"

    if config.task == "tag" and odd and (spans or (looks_like_spans(counts) and config.metric == "auto")):
        yield (
            f"{first(odd)}: {odd[0]!r} is not a span tag (O, B-X, I-X, M-X, E-X, ...): {counted_as(spans=spans)}; "
            f"correct the file, or give --metric {'labels' if spans else 'spans'}"
        )
    elif UNSPECIFIED in counts and is_conllu and conllu_column(path, config.column) not in MAY_BE_EMPTY:
        yield (
            f"{first([UNSPECIFIED])}: the label is unspecified ({UNSPECIFIED}): it is learned and scored like any "
            "other; leave out these sentences, or fill the column"
        )
    if config.task == "classify" and 2 * len(counts) > total >= 20:
        yield (
            f"{path}: {len(counts)} different labels for {total} sentences, so that most occur once and cannot be "
            f"learned (the first: {next(iter(counts))!r}); is it a score, an id or the text? Name the column of the "
            "classes with --label_column (--column in a .tsv file)"
        )
    if len(counts) == 1 < total:
        yield f"{path}: all {total} labels are {next(iter(counts))!r}, so a constant scores 100 %; is --column another?"


def read_labelled(path: str, config: TaskConfig) -> list[Example]:
    """Return the sentences of a file with the labels that the task needs; ElmoFastError if there are others."""
    tags, format = config.task == "tag", format_of(path, config.format)
    each, other, advice = ("word", "sentence", "add") if tags else ("sentence", "word", "leave out")
    needs = f"{path}: --task {config.task} needs a label per {each}, and the format {format} has"
    if format == "text":
        raise ElmoFastError(f"{needs} none: give --format {'columns' if tags else 'tsv'} or another with labels")
    if tags != (format in PER_WORD):
        kind = "classifier" if tags else "tagger"
        raise ElmoFastError(f"{needs} one per {other}; to train a {kind}, {advice} --task classify")
    names: dict[str, Any] = {"label_column": config.label_column, "pair_column": config.pair_column}
    examples = read_examples(path, format, config.column, config.tokenizer, **names)
    if format == "conllu" and all(set(example.labels) == {UNSPECIFIED} for example in examples):
        column = conllu_column(path, config.column)
        raise ElmoFastError(f"{path}: column {column} is empty ({UNSPECIFIED}) in every line; give another --column")
    return examples


def raw_text_note(examples: Sequence[Example], path: str, config: TaskConfig) -> str | None:
    """Return the warning that `elmo-fast embed` has for raw text too, of a file whose sentences no tokenizer split."""
    if config.tokenizer is not None or format_of(path, config.format) in PER_WORD:
        return None
    sentences = [example.words for example in examples]
    number = first_raw_line(list(map(" ".join, sentences)), list(map(len, sentences)))
    return None if number is None else f"{path}, sentence {number + 1} {RAW_TEXT_ADVICE}"


class TaskBatch(NamedTuple):
    """A batch of B sentences, or of B / 2 pairs whose two texts follow one another.

    lengths: [B] int64; labels: [B, T] of a tagger, UNSEEN past each length, or [B] or [B / 2] of a classifier, int64;
    layers: the frozen biLM's that are used, [L+1, B, T, 2D], or None.
    """

    words: list[Sequence[str]]
    lengths: Tensor
    labels: Tensor
    layers: Tensor | None


class Split:
    """Sentences with labels, and the cached layers of the frozen biLM for them.

    Args:
        examples: the sentences or pairs, each text of one word or more.
        labels: those of training; None where only predictions are wanted.
        per_word: whether each word has a label, else each sentence.
        cache: a LayerCache of these sentences, or None.
        layers: numbers of the layers to read from it; None: all.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        labels: Labels | None,
        *,
        per_word: bool,
        cache: LayerCache | None = None,
        layers: Sequence[int] | None = None,
    ) -> None:
        self.examples, self.per_word, self.cache, self._chosen = list(examples), per_word, cache, layers
        self._texts = texts_of(self.examples)
        self.lengths = [max(len(example.words), len(example.second)) for example in self.examples]
        self.words = sum(map(len, self._texts))
        self._ids = [labels.ids(example.labels) if labels else [] for example in self.examples]

    def batch(self, indices: Sequence[int], device: torch.device | str = "cpu") -> TaskBatch:
        """Return the examples of these indices as a batch on a device."""
        texts = text_rows(indices, len(self._texts) // len(self.examples))
        words = [self._texts[index] for index in texts]
        lengths = list(map(len, words))
        layers = None if self.cache is None else self.cache.batch(texts, self._chosen)[0].to(device)
        width = max(lengths) if self.per_word else 1
        rows = [self._ids[index] + [UNSEEN] * (width - len(self._ids[index])) for index in indices]
        labels = torch.tensor(rows if self.per_word else [row[0] for row in rows], device="cpu")
        return TaskBatch(words, torch.tensor(lengths, device="cpu").to(device), labels.to(device), layers)


def training_splits(
    config: TaskConfig,
    data: TaskData,
    elmo: ElmoFeatures | None,
    report: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Split]:
    """Return the splits "train" (the share that is used), "dev" and, if there is one, "test".

    elmo: the model's; the layers of a frozen biLM are computed once and cached on disk: of the training sentences that
    are used, or of all if a run with train_share 1 has cached them.
    """
    per_word, splits = config.task == "tag", dict[str, Split]()
    folder = pathlib.Path(config.cache_dir or pathlib.Path(config.save_dir) / "cache")
    caches, chosen = dict[str, LayerCache](), None
    if elmo is not None and not elmo.fine_tuned:
        needed = {name: (examples, data.kept if name == "train" else None) for name, examples in data.files.items()}
        caches, chosen = cached_splits(elmo.bilm, needed, folder, report=report, progress=progress), elmo.layers
    for name, examples in data.files.items():
        used = data.train if name == "train" else examples
        splits[name] = Split(used, data.labels, per_word=per_word, cache=caches.get(name), layers=chosen)
    return splits


def epoch_batches(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Sentence indices in batches of similar length.

    Sentences of one length and the batches are shuffled by (seed, epoch) alone. lengths: words of each sentence, [N].
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    by_length = order[np.argsort(np.asarray(lengths)[order], kind="stable")]
    batches = _cut(by_length.tolist(), batch_size)
    return [batches[number] for number in random.permutation(len(batches))]


def fixed_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Sentence indices in batches of similar length, longest first, the same every time: for scoring."""
    return _cut(np.argsort(-np.asarray(lengths), kind="stable").tolist(), batch_size)


def _cut(order: list[int], batch_size: int) -> list[list[int]]:
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def shared_subset(count: int, share: float, seed: int) -> list[int]:
    """Which of `count` sentences belong to a share in (0, 1], in the order of the text; at least one.

    By one seed, a smaller share is a subset of a larger one.
    """
    size = max(1, round(share * count))
    return sorted(np.random.default_rng([seed, count]).permutation(count)[:size].tolist())
