"""The losses of an output layer over a vocabulary, by the names that configurations and checkpoints have for them."""

from elmo_fast.modules.losses.full_softmax import FullSoftmaxLoss
from elmo_fast.modules.losses.hierarchical_softmax import HierarchicalSoftmaxLoss
from elmo_fast.modules.losses.negative_sampling import NegativeSamplingLoss
from elmo_fast.modules.losses.sampled_softmax import SampledSoftmaxLoss
from elmo_fast.modules.losses.vocabulary_loss import VocabularyLoss

LOSS_CLASSES: dict[str, type[VocabularyLoss]] = {
    loss.name: loss for loss in (SampledSoftmaxLoss, NegativeSamplingLoss, HierarchicalSoftmaxLoss, FullSoftmaxLoss)
}

__all__ = [
    "LOSS_CLASSES",
    "FullSoftmaxLoss",
    "HierarchicalSoftmaxLoss",
    "NegativeSamplingLoss",
    "SampledSoftmaxLoss",
    "VocabularyLoss",
]
