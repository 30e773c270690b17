"""Pictures of curves, layer weights, words and senses as PNG, SVG, PDF, one HTML page, or files for a projector.

Names are loaded on first use.
"""

from elmo_fast._lazy import lazy

_MODULES = {
    "curves": ("draw_curves",),
    "layers": ("layer_weights", "read_layer_weights"),
    "occurrences": ("Occurrence", "find_occurrences", "occurrence_vectors"),
    "projector": ("write_projector",),
    "senses": ("Senses", "senses_of"),
    "senses_page": ("write_senses_page",),
    "senses_figure": ("senses_picture",),
    "words": ("words_picture",),
}
__getattr__, __dir__ = lazy("elmo_fast.pictures", _MODULES)
__all__ = __dir__()
