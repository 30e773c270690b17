"""How often words occur near each other."""

from elmo_fast.ops._dispatch import register
from elmo_fast.static.cooccurrences.op import BOUNDARY, LEFT_OUT, Cooccurrences, cooccurrences

register(__name__, "native", "reference")

__all__ = ["BOUNDARY", "LEFT_OUT", "Cooccurrences", "cooccurrences"]
