"""The losses over a sample or a tree of words as problems: ours, the same in plain torch, and the truth.

All sides are given the same samples and hand back the gradient of the rows that were used, not of the whole table.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.compare import Side, side
from benchmarks.gpu.session import Session
from elmo_fast import ops
from elmo_fast.tuning import rivals


class Problem:
    """Hidden states, targets by a law like the samples', a table and its bias."""

    core: Callable[..., Tensor]
    """plain torch's loss, but for the look-up: it takes the hidden states and what `looked_up` gives"""
    used: Tensor
    """the rows of the table that have a gradient, sorted"""

    def __init__(self, session: Session, rows: int, words: int, size: int, entries: int | None = None) -> None:
        entries = words if entries is None else entries
        self.tensors = {"hidden": session.noise(rows, size), "table": session.noise(entries, size) * size**-0.5}
        self.bias = session.noise(entries)
        log = session.uniform(rows, dtype=torch.float64) * math.log(words + 1)
        self.targets = (log.exp().long() - 1).clamp(0, words - 1)

    def loss(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: Any) -> Tensor:
        """The op."""
        raise NotImplementedError

    def looked_up(self, table: Tensor, bias: Tensor) -> tuple[Any, ...]:
        """What plain torch's core takes, of tables in its dtype; the table's gradient is sparse."""
        raise NotImplementedError

    def side(self, losses: Callable[..., Tensor], dtype: torch.dtype) -> Side:
        """losses(hidden, table, bias) and their gradients."""
        leaves = {name: t.detach().to(dtype).requires_grad_() for name, t in self.tensors.items()}
        bias = self.bias.detach().to(dtype).requires_grad_()
        made = side(lambda: losses(*leaves.values(), bias), leaves, [bias])

        def result() -> dict[str, Tensor]:
            found = made.result()
            rows = found["d table"].coalesce()
            if not torch.equal(rows.indices()[0], self.used):
                raise ValueError("the table's gradient is not of the words that were used")
            return {"losses": found["outputs"], "d hidden": found["d hidden"], "d rows": rows.values()}

        return Side(made.call, result)

    def ours(self, precision: str, backend: str) -> Side:
        """The op on the float32 table."""
        how = {"sparse": True, "precision": precision, "backend": backend}
        return self.side(lambda *given: self.loss(*given, **how), torch.float32)

    def plain(self, dtype: torch.dtype, core: Callable[..., Tensor] | None = None) -> Side:
        """Plain torch with sparse embeddings and written logits."""
        made = core or type(self).core
        return self.side(lambda hidden, table, bias: made(hidden, *self.looked_up(table, bias)), dtype)

    def truth(self) -> Mapping[str, Tensor]:
        """Plain torch in float64."""
        return self.plain(torch.float64).result()


class Sampled(Problem):
    """The sampled softmax of pretraining."""

    core = staticmethod(rivals.sampled_losses)

    def __init__(self, session: Session, rows: int, words: int, samples: int, size: int) -> None:
        super().__init__(session, rows, words, size)
        ids, tries = ops.log_uniform_sample(samples, words, seed=1)
        self.samples, self.tries = ids.to(session.device), tries.to(session.device)
        self.ids = torch.cat([self.targets, self.samples])
        self.used = self.ids.unique()

    def loss(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: Any) -> Tensor:
        return ops.sampled_softmax(hidden, self.targets, table, bias, self.samples, self.tries, **how)

    def looked_up(self, table: Tensor, bias: Tensor) -> tuple[Any, ...]:
        expected = ops.log_expected_counts(self.ids, self.tries, len(self.samples), len(table))
        offsets = F.embedding(self.ids, bias[:, None], sparse=False)[:, 0] - expected.to(table.dtype)
        rows, count = F.embedding(self.ids, table, sparse=True), len(self.targets)
        return rows[:count], rows[count:], offsets, self.ids


class Negative(Problem):
    """Negative sampling: five noise words a target, by the law of counts to the power 3/4."""

    core = staticmethod(rivals.negative_losses)

    def __init__(self, session: Session, rows: int, words: int, samples: int, size: int) -> None:
        super().__init__(session, rows, words, size)
        law = ops.alias_table(counts(words), power=0.75)
        self.samples = ops.alias_sample(samples, law, seed=1, device=session.device)
        self.ids = torch.cat([self.targets, self.samples])
        self.used = self.ids.unique()

    def loss(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: Any) -> Tensor:
        return ops.negative_sampling(hidden, self.targets, table, bias, self.samples, negatives=5, **how)

    def looked_up(self, table: Tensor, bias: Tensor) -> tuple[Any, ...]:
        offsets = F.embedding(self.ids, bias[:, None], sparse=False)[:, 0]
        rows, count = F.embedding(self.ids, table, sparse=True), len(self.targets)
        return rows[:count], rows[count:], offsets, self.ids, 5 / len(self.samples)


class Hierarchical(Problem):
    """The path through Huffman's tree; paths are filled up to the longest by their own last step."""

    core = staticmethod(rivals.path_losses)

    def __init__(self, session: Session, rows: int, words: int, size: int) -> None:
        super().__init__(session, rows, words, size, entries=words - 1)
        self.tree = tree = ops.huffman_tree(counts(words)).to(session.device)
        begin, end = tree.first[self.targets, None], tree.first[self.targets + 1, None]
        steps = begin + torch.arange(tree.longest, device=session.device)
        self.inside, steps = steps < end, torch.minimum(steps, end - 1)
        self.passed, self.signs = tree.nodes[steps], 1 - 2 * tree.codes[steps].long()
        self.used = self.passed.unique()

    def loss(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: Any) -> Tensor:
        return ops.hierarchical_softmax(hidden, self.targets, table, bias, self.tree, **how)

    def looked_up(self, table: Tensor, bias: Tensor) -> tuple[Any, ...]:
        offsets = F.embedding(self.passed, bias[:, None], sparse=False)[..., 0]
        return F.embedding(self.passed, table, sparse=True), offsets, self.signs, self.inside


def counts(words: int) -> Tensor:
    """How often each word occurs: by rank, as Zipf's law has it."""
    return 10**7 // torch.arange(1, words + 1)
