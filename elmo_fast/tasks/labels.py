"""Labels and their numbers: those of the training split, and what to do with all others."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_json
from elmo_fast.json_files import read_json
from elmo_fast.tasks.formats import Example

UNSEEN = -100
"""The number of a label that training has not seen: no loss (torch's `ignore_index`), and wrong in every score."""

_SHOWN = 5


class Labels:
    """The labels of a training split, numbered from 0.

    names: distinct, in the order of their numbers.

    Raises: ElmoFastError: no names, or one twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.index = {name: number for number, name in enumerate(self.names)}
        if not self.names or len(self.index) < len(self.names):
            twice = [name for name, count in Counter(self.names).items() if count > 1]
            raise ElmoFastError(f"labels must be one or more, all different; got {twice if twice else 'none'}")

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Labels":
        """Those that occur in `examples`, in the order of their names."""
        return cls(sorted({label for example in examples for label in example.labels}))

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and other.names == self.names

    __hash__ = None  # type: ignore[assignment]

    def ids(self, labels: Iterable[str]) -> list[int]:
        """The number of each label, UNSEEN for those that are not among the names."""
        get = self.index.get
        return [get(label, UNSEEN) for label in labels]

    def of_ids(self, ids: Iterable[int]) -> list[str]:
        """The label of each number."""
        return [self.names[number] for number in ids]

    def unseen(self, examples: Sequence[Example], split: str) -> str | None:
        """One sentence on the labels of a split that are not among the names, or None where there are none.

        split: how the split is called in that sentence
        """
        counts = Counter(label for example in examples for label in example.labels)
        strange = Counter({label: count for label, count in counts.items() if label not in self.index})
        if not strange:
            return None
        shown = ", ".join(f"{label} ({count})" for label, count in strange.most_common(_SHOWN))
        more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
        return (
            f"{split}: {strange.total()} of {counts.total()} labels are of a kind that training has not seen: "
            f"{shown}{more}; they give no loss and count as wrong"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the names as a JSON list."""
        write_json(path, self.names)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Labels":
        """Those that `save` wrote. Raises: ElmoFastError: the file is not there, or holds something else."""
        return cls(read_json(path, list[str]))
