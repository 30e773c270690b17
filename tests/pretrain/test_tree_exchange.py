"""Exact shards: the same weights on any number of processes, to the bit."""

import os
import re
import types

import pytest
import torch
import torch.distributed as dist

from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _graphs
from elmo_fast.pretrain import trainer
from elmo_fast.pretrain.config import complaints
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.exact_shards import describe_inexact
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.plan import estimate_memory
from elmo_fast.pretrain.processes import Processes, join_processes
from elmo_fast.pretrain.run import pretrain as start
from elmo_fast.pretrain.step import tree_of_processes
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.binary_tree import BinaryTree, tree_sum
from elmo_fast.pretrain.step.step_inputs import draw_inputs
from elmo_fast.pretrain.step.training_step import Step
from elmo_fast.pretrain.step.tree_exchange import TreeExchange
from elmo_fast.pretrain.step.tree_of_processes import TreeOfProcesses
from tests.pretrain.exact_proof import train
from tests.pretrain.toy import toy_config, toy_corpus, toy_model, toy_words
from tests.torture.children import ended, started


def leaves(count, seed=0):
    """Some tensors of each of `count` leaves, whose sum depends on the order."""
    generator = torch.Generator().manual_seed(seed)
    shapes, scale = [(5,), (3, 7), (1,), (2, 2)], 10.0 ** torch.arange(count)
    return [[torch.randn(shape, generator=generator) * each for shape in shapes] for each in scale]


def copied(of):
    return [[tensor.clone() for tensor in leaf] for leaf in of]


def same(ours, wanted):
    assert len(ours) == len(wanted)
    assert all(map(torch.equal, ours, wanted))


def test_a_tree_adds_neighbours_then_pairs_and_holds_few():
    """((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), which differs from the sum in a row; at most log2 n + 1 are held."""
    a, b, c, d, e, f, g, h = (leaf[1] for leaf in leaves(8))
    wanted = ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert not torch.equal(wanted, sum((b, c, d, e, f, g, h), a))
    tree, held = BinaryTree(), []
    for leaf in leaves(8):
        tree.add(leaf)
        held.append(len(tree._sums))
    assert torch.equal(tree.total()[1], wanted)
    assert held == [1, 1, 2, 1, 2, 2, 3, 1]
    with pytest.raises(ValueError, match="unpack"):
        tree_sum(leaves(3))


class Recorded:
    """`part` and `finish` of an exchange over given gradients of each shard; what they leave."""

    def __init__(self, processes, shards):
        self.table = [torch.nn.Parameter(torch.zeros(9, 2)), torch.nn.Parameter(torch.zeros(9))]
        self.dense = [torch.nn.Parameter(torch.zeros(3, 7)), torch.nn.Parameter(torch.zeros(5))]
        everything = [self.dense[0], *self.table, self.dense[1]]
        self.exchange = TreeExchange(torch.nn.Identity(), everything, [self.table], processes, shards)

    def run(self, gradients):
        """gradients: ([3, 7], [5], ids, rows [n, 2], biases [n]) of each shard."""
        for number, (first, second, ids, rows, biases) in enumerate(gradients):
            with self.exchange.part(number):
                self.dense[0].grad, self.dense[1].grad = first, second
                for parameter, values in zip(self.table, (rows, biases), strict=True):
                    parameter.grad = torch.sparse_coo_tensor(ids[None], values, parameter.shape, check_invariants=True)
        self.exchange.finish()
        found = [self.table[0].grad, self.table[1].grad]
        assert all(each.is_coalesced() for each in found)
        return [parameter.grad for parameter in self.dense] + [each.to_dense() for each in found]


def shard_gradients(shards):
    """Ids repeated within a shard, other ones in each; rows of -0, which must not become 0 on some processes alone."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for number, (second, first, *_) in enumerate(leaves(shards)):
        ids = torch.tensor([number % 5, 7, number % 5, 8])
        rows = torch.randn(4, 2, generator=generator) * 10.0**number
        rows[3] = -0.0
        found.append((first, second, ids, rows, torch.randn(4, generator=generator) * 0.1**number))
    return found


def added_backwards(tensor):
    """As `Processes.sum_`, in the order of falling ranks: it says nothing of its own."""
    parts = [torch.empty_like(tensor) for _ in range(4)]
    dist.all_gather(parts, tensor)
    return sum(reversed(parts[:-1]), parts[-1])


def test_processes_add_in_the_same_tree_as_one_does(tmp_path, monkeypatch):
    """Four processes on one machine or two: slices of several buckets, sizes that four does not divide, two dtypes;
    sparse rows of a table whose ids differ; sums of losses."""
    monkeypatch.setattr(tree_of_processes, "BUCKET", 20)
    dtypes = (torch.float32, torch.float64, torch.float64, torch.float32)
    given = [[each.to(dtype) for each, dtype in zip(leaf, dtypes, strict=True)] for leaf in leaves(4)]
    wanted, gradients = tree_sum(copied(given)), shard_gradients(8)
    alone = Recorded(Processes(), 8)
    with alone.exchange.part(0):  # of a step that fails then
        alone.dense[0].grad = torch.ones(3, 7)
    table = alone.run(gradients)
    sums = torch.randn(8, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    total = alone.exchange.total(sums)
    same([total], tree_sum([each.clone()] for each in sums))
    dense = [
        torch.sparse_coo_tensor(i[None], r, (9, 2), check_invariants=True).to_dense() for _, _, i, r, _ in gradients
    ]
    same([table[2]], tree_sum([each] for each in dense))

    def check(processes, sizes):
        tree, mine = TreeOfProcesses(processes), copied(given)[processes.rank]
        tree.add(mine)
        same(mine, wanted)
        few = Recorded(processes, 8)
        assert [level.size for level in few.exchange.tree.levels] == sizes
        part = slice(2 * processes.rank, 2 * processes.rank + 2)
        found = few.run(shard_gradients(8)[part])
        same(found, table)
        same([each.signbit() for each in found], [each.signbit() for each in table])
        processes.sum_ = added_backwards
        assert few.exchange.total(sums[part]).tolist() == total.tolist()

    def work():
        with join_processes(torch.device("cpu")) as processes:
            rank = processes.rank
            # (processes of this one's machine, its place there): one machine; two in order; out of order; of two sizes.
            unequal = [(2, 0), (2, 1), (1, 0), (1, 0)][rank]
            for count, place, sizes in (
                (4, rank, [4]), (2, rank % 2, [2, 2]), (2, rank // 2, [4]), (*unequal, [4])
            ):  # fmt: skip
                os.environ |= {"LOCAL_WORLD_SIZE": str(count), "LOCAL_RANK": str(place)}
                check(processes, sizes)

    assert ended(started(work, 4, tmp_path / "log"), tmp_path / "log")


@pytest.mark.parametrize(
    ("loss", "read", "sittings"),
    [
        ("sampled_softmax", "characters", [(1, 3), (2, 6), (2, None)]),
        ("negative_sampling", "words", [(2, None)]),
        ("full_softmax", "words", [(2, None)]),
    ],
)
def test_another_number_of_processes_trains_the_same_weights(tmp_path, loss, read, sittings):
    """Eight steps, the last of an epoch among them, killed and resumed; what is reported, of held-out text too: to the
    bit those of one process. `exact_proof.py` is the same over more steps and processes."""
    settings = {"max_steps": 8, "checkpoint_interval": 2, "loss": loss, "input": read}
    settings |= {"heldout_prefix": str(tmp_path / "train-1*"), "heldout_interval": 4}
    weights, reports = train(tmp_path, "one", (1, None), **settings)
    assert (len(reports), sum(perplexity is not None for *_, perplexity in reports)) == (10, 2)
    assert train(tmp_path, "changing", *sittings, **settings) == (weights, reports)


def test_a_run_that_resumes_with_other_shards_is_warned(tmp_path, monkeypatch):
    """Its weights are no longer those of an undisturbed run. Held-out text is evaluated in as many shards."""
    lines, evaluated = [], []
    monkeypatch.setattr(trainer, "evaluate", lambda *given, shards, **more: evaluated.append(shards))
    monkeypatch.setattr(RunLog, "heldout", lambda *given: None)
    for shards, steps in ((None, 2), (2, 4), (2, 5)):
        settings = {"batch_size": 4, "max_steps": steps, "heldout_prefix": str(tmp_path / "train-1*")}
        run = start(toy_config(tmp_path, exact_shards=shards, **settings), report=lines.append)
    assert evaluated == [None, 2, 2]
    assert [line for line in lines if "exact_shards" in line] == [
        "WARNING exact_shards was null, now 2: from step 2 on gradients are added in another order, so that the "
        "weights will equal those of an undisturbed run but for rounding"
    ]
    assert run.outcome.steps == 5
    assert sum("| 2 exact shards" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"exact_shards": 6, "batch_size": 12}, r"exact_shards must be a power of two \(1, 2, 4, 8 ...\); got 6"),
        ({"exact_shards": 8, "batch_size": 12}, "batch_size must be divisible by exact_shards=8; got 12"),
        ({"exact_shards": 2, "batch_size": 4, "micro_batches": 2}, "micro_batches must be 1 with exact_shards=2"),
        ({"exact_shards": 2, "batch_size": 4, "optimiser": "adamw"}, "exact_shards goes with optimiser: adagrad"),
        ({"exact_shards": 0}, "exact_shards must be a whole number above 0 or null; got 0"),
    ],
)
def test_what_does_not_go_with_shards_is_refused(tmp_path, changes, wanted):
    assert [bool(re.search(wanted, each)) for each in complaints(toy_config(tmp_path, **changes))] == [True]


def test_a_number_of_processes_that_does_not_divide_the_shards_is_refused():
    processes = Processes()
    processes.size = 3
    with pytest.raises(ElmoFastError, match=r"exact_shards=4 shards cannot .* 3 processes; .* one of: 1, 2, 4, or"):
        processes.assign_rows(24, 1, 4)


def test_held_out_text_is_added_up_by_shards():
    """Of a model in float64, in which the order of the sums shows: two processes of four shards, and one."""
    corpus, added = toy_corpus(), []
    model = toy_model(toy_config(), corpus).double()
    settings = {"batch_size": 5, "unroll_steps": 2, "shards": 4}

    def add(totals):
        added.append(totals)
        return sum(added)

    for rank in range(2):
        processes = types.SimpleNamespace(rank=rank, size=2, assign_shards=lambda shards: 2, sum_=add)
        found = evaluate(model, corpus, processes=processes, **settings)
    assert found == evaluate(model, corpus, **settings)


def test_every_process_knows_that_a_step_is_not_filled():
    """One whose own rows are filled computes as if they might not be, as one that has all rows does."""
    config, corpus = toy_config(dropout=0.0), toy_corpus()
    *_, last = toy_words(config, corpus)
    assert (last.filled < 5).tolist() == [False, False, True]
    model = toy_model(config, corpus)
    assert draw_inputs(last.part(0, 2), None, 0, model, 0, 0.0).lengths.tolist() == [5, 5]


def test_a_gpus_user_is_told_that_shards_are_launched(monkeypatch):
    monkeypatch.setattr(_graphs, "enabled", lambda device: True)
    model = toy_model(toy_config(), toy_corpus())
    with pytest.warns(PerformanceWarning, match=r"without CUDA graphs, .* with exact_shards"):
        step = Step(model, AdaGrad(model.parameters()), clip_norm=1.0, exact_shards=2)
    assert step.captured is None


def test_plain_torch_is_warned_of_threads():
    """Nothing is said of the native ops, nor without exact shards."""
    said = [
        describe_inexact(toy_config(exact_shards=shards, backend=backend), torch.device("cpu"))
        for shards, backend in ((1, "reference"), (None, "reference"), (1, "auto"))
    ]
    assert list(map(len, said)) == [1, 0, 0]
    assert "give every run the same --threads" in said[0][0]


def test_more_shards_take_the_memory_of_more_gradients(tmp_path):
    """log2 of a process's shards, and one more; the activations of one."""
    one, four = (
        estimate_memory(toy_config(tmp_path, batch_size=8, exact_shards=4), 100, 8 // parts, parts) for parts in (1, 4)
    )
    assert four["gradients"] == 3 * one["gradients"]
    assert four["activations"] * 4 == one["activations"]
