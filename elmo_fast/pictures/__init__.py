"""Pictures of curves, layer weights, words and senses as PNG, SVG, PDF, one HTML page, or files for a projector."""

from elmo_fast.fields import document_fields
from elmo_fast.pictures.curves import draw as draw_curves
from elmo_fast.pictures.layers import layer_weights, read_layer_weights
from elmo_fast.pictures.occurrences import Occurrence, find_occurrences, occurrence_vectors
from elmo_fast.pictures.projector import write_projector
from elmo_fast.pictures.senses import Senses, senses_of
from elmo_fast.pictures.senses_page import write_senses_page
from elmo_fast.pictures.senses_picture import senses_picture
from elmo_fast.pictures.words import words_picture

__all__ = [
    "Occurrence",
    "Senses",
    "draw_curves",
    "find_occurrences",
    "layer_weights",
    "occurrence_vectors",
    "read_layer_weights",
    "senses_of",
    "senses_picture",
    "words_picture",
    "write_projector",
    "write_senses_page",
]

for _name in __all__:
    document_fields(globals()[_name])
