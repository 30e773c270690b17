"""ELMo at the speed of the hardware. Names are loaded when first used: importing the package costs next to nothing."""

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"elmo_fast.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'elmo_fast' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
