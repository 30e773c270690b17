"""GloVe's weighted least squares by AdaGrad."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.glove import native, reference
from elmo_fast.ops.glove.op import GloveWeights, glove_

register("glove", native=native, reference=reference)

__all__ = ["GloveWeights", "glove_"]
