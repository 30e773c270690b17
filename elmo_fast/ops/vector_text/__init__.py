"""The lines of files of word vectors: a word and its numbers."""

from elmo_fast.ops._dispatch import register
from elmo_fast.ops.vector_text import native, reference
from elmo_fast.ops.vector_text.op import VectorText, read_vector_text, write_vector_text

register("vector_text", native=native, reference=reference)

__all__ = ["VectorText", "read_vector_text", "write_vector_text"]
