"""GloVe's weighted least squares by AdaGrad."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.glove.op import GloveWeights, glove_

register(__name__, "native", "reference")

__all__ = ["GloveWeights", "glove_"]
