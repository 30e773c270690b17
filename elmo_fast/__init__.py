"""ELMo at the speed of the hardware. Names are loaded on first use, so importing the package costs almost nothing."""

from elmo_fast._lazy import lazy

__version__ = "0.1.0"

_MODULES = {
    "modules": (
        "Elmo",
        "ElmoTokenEmbedder",
        "BiLM",
        "CharacterEncoder",
        "ProjectedLSTM",
        "ScalarMix",
        "SampledSoftmaxLoss",
        "NegativeSamplingLoss",
        "HierarchicalSoftmaxLoss",
        "FullSoftmaxLoss",
    ),
    "embed": ("ElmoEmbedder", "ElmoVectors"),
    "text": ("Vocabulary", "batch_to_ids"),
}
__getattr__, __dir__ = lazy("elmo_fast", _MODULES, "__version__")
__all__ = __dir__()
