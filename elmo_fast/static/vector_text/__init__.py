"""The lines of files of word vectors: a word and its numbers."""

from elmo_fast.ops._dispatch import register
from elmo_fast.static.vector_text.op import VectorText, read_vector_text, write_vector_text

register(__name__, "native", "reference")

__all__ = ["VectorText", "read_vector_text", "write_vector_text"]
