"""ELMo at the speed of the hardware. Names are loaded on first use, so importing the package costs almost nothing."""

import pathlib

from elmo_fast._lazy import lazy

__version__ = "1.0.0"

# A build leaves the extension next to this file or, where it failed, a note that says why. A clone that nobody built
# has neither, and would otherwise hide an installed package from a Python that is started in it.
_FOLDER = pathlib.Path(__file__).parent
if (_FOLDER.parent / "setup.py").is_file() and not any(
    any(_FOLDER.glob(result)) for result in ("_C.*", "_build_failure.txt")
):
    raise ImportError(
        f"{_FOLDER.parent} holds the sources of elmo_fast, which are not compiled: run `make build` or `pip install "
        "--no-build-isolation -e .` there or, if elmo_fast is installed, start Python in a different folder"
    )

_MODULES = {
    "modules.bilm": ("BiLM",),
    "modules.char_cnn": ("CharCNN", "Highway"),
    "modules.character_encoder": ("CharacterEncoder",),
    "modules.elmo": ("Elmo", "ElmoTokenEmbedder"),
    "modules.losses": (
        "SampledSoftmaxLoss",
        "NegativeSamplingLoss",
        "HierarchicalSoftmaxLoss",
        "FullSoftmaxLoss",
        "clip_grad_norm_",
    ),
    "modules.lstm": ("LSTM",),
    "modules.projected_lstm": ("ProjectedLSTM",),
    "modules.scalar_mix": ("ScalarMix",),
    "embed": ("ElmoEmbedder", "ElmoVectors", "SentenceIndex"),
    "text": ("Vocabulary", "batch_to_ids"),
}
__getattr__, __dir__ = lazy("elmo_fast", _MODULES, "__version__")
__all__ = __dir__()
