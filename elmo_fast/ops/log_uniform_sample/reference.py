"""log_uniform_sample in numpy: the definition.

Its exponential is libm's (math.exp); C++ and Triton have their own, the same on CPU and GPU.
csrc/common/philox.h says how rarely the two could give different ids: 5e-12 per sample.
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
        u = uniforms(seed, offset, blocks_done, blocks)
        blocks_done += blocks
        values = np.fromiter((int(math.exp(x)) for x in (u * log_range).tolist()), np.int64, len(u)) - 1
        candidates = np.concatenate([ids, values % num_words])
        first = np.sort(np.unique(candidates, return_index=True)[1])[:num_samples]
        tries += int(first[-1]) + 1 - len(ids) if len(first) == num_samples else len(values)
        if tries >= MAX_TRIES:
            raise RuntimeError(f"log_uniform_sample: {num_samples} of {num_words} words were not found in 2^31 tries")
        ids = candidates[first]
    return torch.from_numpy(ids), torch.tensor(tries, dtype=torch.int64, device="cpu")
