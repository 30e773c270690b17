"""log_uniform_sample in numpy: the definition.

Its exponential is libm's (math.exp). Triton has one of its own, whose every operation is rounded once and whose fma are
written out. They can give different ids only where the real e^x lies within 0.2 ulp of the tie between a whole number
and the double below it: a chance of 5e-12 a try, for V = 793,471, and of 8e-8 a sample of 8192 words (16,053 tries).
"""

import math

import numpy as np
import torch
from torch import Tensor

from elmo_fast.ops._sampling import uniforms

MAX_TRIES = 2**31 - 1


def log_uniform_sample(num_samples: int, num_words: int, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    log_range = math.log1p(num_words)
    ids = np.empty(0, dtype=np.int64)
    tries = blocks_done = 0
    while len(ids) < num_samples:
        blocks = max(num_samples, 64)
        exponents = uniforms(seed, offset, blocks_done, blocks).numpy() * log_range
        blocks_done += blocks
        values = np.exp(exponents)
        # The last bit of numpy's depends on the CPU, and matters only next to a whole number.
        for i in np.flatnonzero(abs(values - np.rint(values)) < 1e-12 * values):
            values[i] = math.exp(exponents[i])
        candidates = np.concatenate([ids, (values.astype(np.int64) - 1) % num_words])
        first = np.sort(np.unique(candidates, return_index=True)[1])[:num_samples]
        tries += int(first[-1]) + 1 - len(ids) if len(first) == num_samples else len(values)
        if tries >= MAX_TRIES:
            raise RuntimeError(f"log_uniform_sample: {num_samples} of {num_words} words were not found in 2^31 tries")
        ids = candidates[first]
    return torch.from_numpy(ids), torch.tensor(tries, dtype=torch.int64, device="cpu")
