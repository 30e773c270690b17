"""Results of a work with one thread and with two."""

from elmo_fast.threads import torch_threads


def with_one_and_two(work):
    """[work(), work()]: with one of torch's threads, then with two."""
    results = []
    for count in (1, 2):
        with torch_threads(count):
            results.append(work())
    return results
