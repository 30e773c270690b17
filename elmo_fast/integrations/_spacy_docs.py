"""What the spaCy component reads from a Doc and writes to it; imports no spaCy."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError

Array = np.ndarray[Any, np.dtype[np.float32]]
KEPT = "elmo_fast"  # where in doc.user_data the vectors lie when doc.tensor is another component's


def sentences_of(doc: Any) -> list[list[Any]]:
    """The tokens of each sentence of a Doc, or of the whole Doc if it has no sentences, without white space."""
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc]
    return [[token for token in span if not token.is_space] for span in spans]


def attach_vectors(doc: Any, vectors: Array) -> None:
    """Puts the vectors [tokens, W] on the Doc, and the hooks that return them; what is already set stays."""
    free = doc.tensor is None or doc.tensor.size == 0 or _reads_tensor(doc.user_hooks.get("vector"))
    if free:
        doc.tensor = vectors
    else:
        doc.user_data[KEPT] = vectors
    read = _tensor if free else _kept
    kinds = (("token", doc.user_token_hooks), ("span", doc.user_span_hooks), ("doc", doc.user_hooks))
    taken = [kind for kind, hooks in kinds if not _is_ours(hooks.get("vector"))]
    for kind, hooks in kinds:
        if kind not in taken:
            hooks["vector"] = functools.partial(_VECTOR_OF[kind], read)
            hooks.setdefault("has_vector", _has_vector)
            hooks.setdefault("similarity", _similarity)
    if taken:
        where = "doc.tensor" if free else f"doc.user_data[{KEPT!r}]"
        warnings.warn(
            f"another component has set the vector hook of {', '.join(taken)}: left as it is; ELMo's are in {where}",
            stacklevel=2,
        )


def _is_ours(hook: Any) -> bool:
    """Whether there is no hook, or one of an earlier run."""
    return hook is None or (isinstance(hook, functools.partial) and hook.func in _VECTOR_OF.values())


def _reads_tensor(hook: Any) -> bool:
    """Whether doc.tensor is of an earlier run."""
    return isinstance(hook, functools.partial) and hook.args == (_tensor,)


def _tensor(doc: Any) -> Array:
    return doc.tensor


def _kept(doc: Any) -> Array:
    vectors = doc.user_data.get(KEPT)
    if vectors is None or len(vectors) != len(doc):
        raise ElmoFastError(
            f"this Doc of {len(doc)} tokens was made from another after elmo_fast had run; run elmo_fast on it"
        )
    return vectors


def _of_token(read: Callable[[Any], Array], token: Any) -> Array:
    return read(token.doc)[token.i]


def _of_span(read: Callable[[Any], Array], span: Any) -> Array:
    return _mean(read(span.doc), span)


def _of_doc(read: Callable[[Any], Array], doc: Any) -> Array:
    return _mean(read(doc), doc)


def _has_vector(here: Any) -> bool:
    return bool(here.vector.any())


def _similarity(here: Any, other: Any) -> float:
    """The cosine of two vectors, 0 where one is zero. spaCy's own takes the same word for the same vector."""
    a, b = here.vector, other.vector
    if a.shape != b.shape:
        raise ElmoFastError(
            f"similarity compares vectors of one width; {str(here)!r:.40} has {a.shape[-1]}, {str(other)!r:.40} has "
            f"{b.shape[-1]}; run the same elmo_fast on both"
        )
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.dot(a, b)) / norms if norms else 0.0


def _mean(vectors: Array, tokens: Any) -> Array:
    """The mean of the tokens that are no white space; zeros where there is none."""
    rows = [token.i for token in tokens if not token.is_space]
    return vectors[rows].mean(axis=0) if rows else np.zeros(vectors.shape[1], np.float32)


_VECTOR_OF: dict[str, Callable[..., Array]] = {"token": _of_token, "span": _of_span, "doc": _of_doc}
