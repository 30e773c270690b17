"""word2vec's negative sampling, and noise contrastive estimation."""

from elmo_fast.ops.negative_sampling.op import negative_sampling

__all__ = ["negative_sampling"]
