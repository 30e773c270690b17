"""word2vec's negative sampling, and noise contrastive estimation."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.negative_sampling.op import negative_sampling

register(__name__, "native", "reference")

__all__ = ["negative_sampling"]
