"""GloVe: weighted least squares by AdaGrad over how often words occur near each other."""

from elmo_fast.static.glove.op import GloveWeights, glove_
from elmo_fast.static.glove.training import SLICE, GloveEpoch, train_glove

__all__ = ["SLICE", "GloveEpoch", "GloveWeights", "glove_", "train_glove"]
