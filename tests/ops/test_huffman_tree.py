"""huffman_tree: the least cost of all binary codes, paths that are a tree."""

import heapq
import itertools

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import huffman_tree

FIBONACCI = [1, 1]
while len(FIBONACCI) < 60:
    FIBONACCI.append(FIBONACCI[-1] + FIBONACCI[-2])
COUNTS = {
    "one word": [7],
    "two": [1, 5],
    "equal": [3] * 8,
    "equal, no power of two": [1] * 11,
    "zeros": [0, 0, 4, 0],
    "deepest": FIBONACCI,
    "zipf": [10**6 // k for k in range(1, 3000)],
    "unsorted": [5, 900, 5, 1, 1, 40, 7],
    "beyond 32 bits": [2**40, 2**41, 2**61, 1, 1],
}


def least_cost(counts):
    """sum_k count_k length_k of Huffman's tree: the sum of all joined counts."""
    heap, cost = list(counts), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    return cost


def words(tree):
    """Each word's path as (node, code) pairs."""
    first, nodes, codes = (x.tolist() for x in tree[:3])
    pairs = list(zip(nodes, codes, strict=True))
    return [pairs[a:b] for a, b in itertools.pairwise(first)]


@pytest.mark.parametrize("name", COUNTS)
def test_no_code_is_cheaper_and_paths_are_a_tree(name):
    """The cost is the heap's, every word has its own code, and Kraft's sum is full: no code begins another's.

    Every path starts at the root, every inner node has one way in and two ways on."""
    counts = COUNTS[name]
    tree = huffman_tree(torch.tensor(counts))
    paths = words(tree)
    lengths = [len(path) for path in paths]
    assert sum(c * n for c, n in zip(counts, lengths, strict=True)) == least_cost(counts)
    assert tree.longest == max(lengths)
    assert sum(2 ** (tree.longest - n) for n in lengths) == 2**tree.longest
    assert len({tuple(code for _, code in path) for path in paths}) == len(counts)
    children = {}
    for word, path in enumerate(paths):
        assert not path or path[0][0] == len(paths) - 2
        for (node, code), after in zip(
            path, [*[node for node, _ in path[1:]], f"word {word}"][: len(path)], strict=True
        ):
            assert children.setdefault((node, code), after) == after
    assert len(children) == len(set(children.values())) == 2 * (len(paths) - 1)


def test_by_hand():
    """Counts 5, 2, 1, 1: the two ones joined (the later first), then the two with them, then the five.

    Words come before joined trees of their count, which keeps paths short: 1, 1, 2, 2 has all codes of length 2."""
    tree = huffman_tree(torch.tensor([5, 2, 1, 1]))
    assert words(tree) == [[(2, 1)], [(2, 0), (1, 0)], [(2, 0), (1, 1), (0, 1)], [(2, 0), (1, 1), (0, 0)]]
    assert huffman_tree(torch.tensor([1, 1, 2, 2])).longest == 2


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (torch.ones(2), "counts must be int64"),
        (torch.ones(0, dtype=torch.long), "at least one word"),
        (torch.tensor([3, -1]), "not be negative; got -1"),
        (torch.tensor([2**62, 2**62]), "must be below 2.63"),
        (torch.ones(2, dtype=torch.long, device="meta"), "must be on the CPU"),
    ],
)
def test_bad_counts_are_refused(counts, expected):
    """Each in one sentence: argument, expected, actual."""
    with pytest.raises(ElmoFastError, match=expected):
        huffman_tree(counts)
