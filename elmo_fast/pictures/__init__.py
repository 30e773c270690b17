"""Pictures of curves, layer weights, words and senses as PNG, SVG, PDF, one HTML page, or files for a projector.

Names are loaded on first use.
"""

from elmo_fast._lazy import lazy

_MODULES = {
    "curves": ("draw_curves",),
    "layers": ("layer_weights", "read_layer_weights"),
    "projector": ("write_projector",),
    "senses": (
        *("Occurrence", "Senses", "find_occurrences", "occurrence_vectors", "senses_of"),
        *("senses_picture", "write_senses_page"),
    ),
    "words": ("words_picture",),
}
__getattr__, __dir__ = lazy("elmo_fast.pictures", _MODULES)
__all__ = __dir__()
