"""ELMo at the speed of the hardware. Names are loaded on first use, so importing the package costs almost nothing."""

from elmo_fast._lazy import loader

__version__ = "0.1.0"

_HOMES = {
    "Elmo": "modules",
    "ElmoEmbedder": "modules",
    "ElmoTokenEmbedder": "modules",
    "BiLM": "modules",
    "CharacterEncoder": "modules",
    "ProjectedLSTM": "modules",
    "ScalarMix": "modules",
    "SampledSoftmaxLoss": "modules",
    "NegativeSamplingLoss": "modules",
    "HierarchicalSoftmaxLoss": "modules",
    "FullSoftmaxLoss": "modules",
    "Vocabulary": "text",
    "batch_to_ids": "text",
}
__all__ = ["__version__", *sorted(_HOMES)]


__getattr__ = loader("elmo_fast", _HOMES, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
