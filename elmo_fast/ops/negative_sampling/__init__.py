"""word2vec's negative sampling, and noise contrastive estimation."""

from elmo_fast.ops._dispatch import register

register(__name__, "native", "triton", "reference")
