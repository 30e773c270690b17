"""log_uniform_sample: any counts and seeds; bit by bit the same."""

import random

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import expected_counts, log_uniform_sample
from tests.fuzz.judge import Wrong, sentence
from tests.fuzz.tensors import threads


def case(rng: random.Random) -> None:
    threads(rng)
    words = rng.choice((1, 2, 10, 1000, 10**6, 2**31 - 1, 2**31, 0, -1))
    samples = rng.choice((1, 2, 50, 200, 0, -1, min(words, 60), words + 1))
    seed, offset = (rng.choice((0, 1, 2**63 - 1, rng.getrandbits(62), 2**63, -1)) for _ in range(2))
    actual = []
    for backend in ("native", "reference"):
        try:
            ids, tries = log_uniform_sample(samples, words, seed=seed, offset=offset, backend=backend)
            actual.append([ids.tolist(), int(tries), expected_counts(ids, tries, samples, words).tolist()])
        except ElmoFastError as error:
            sentence(str(error))
            actual.append(None)
    if repr(actual[0]) != repr(actual[1]):
        raise Wrong("log_uniform_sample: native and reference differ")
