"""spaCy: the pipeline component "elmo_fast", which gives every token its ELMo vector."""

import functools
import operator
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError, require
from elmo_fast.modules.elmo import save_bilm

_language = require("spacy.language", "spacy", __name__)
_tokens = require("spacy.tokens", "spacy", __name__)
_Pipe: Any = require("spacy.pipeline", "spacy", __name__).Pipe
_util = require("spacy.util", "spacy", __name__)

_DEFAULTS = {"layers": "average", "precision": "float32", "device": "cpu", "max_tokens": 4096}
USER_DATA = "elmo_fast"  # key of the vectors in doc.user_data when doc.tensor is another component's
Array = np.ndarray[Any, np.dtype[np.float32]]


@_language.Language.factory("elmo_fast", assigns=["doc.tensor"], default_config=_DEFAULTS)
def make_elmo_fast(
    nlp: Any, name: str, model: str, layers: int | list[int] | str, precision: str, device: str, max_tokens: int
) -> "ElmoPipe":
    """Create the component of `nlp.add_pipe("elmo_fast", config={"model": folder})`; arguments as in TokenVectors."""
    return ElmoPipe(name, model, layers=layers, max_tokens=max_tokens, precision=precision, device=device)


class ElmoPipe(_Pipe):
    """Sets doc.tensor [tokens, W] float32 and the hooks behind `token.vector`, `span.vector` and `doc.vector`.

    Each sentence runs by itself; a Doc without sentences runs as one. Tokens of white space are skipped and have zeros.
    What another component has set stays: if doc.tensor is taken, the vectors are in doc.user_data["elmo_fast"] and
    behind the hooks; an existing hook stays, with a warning. The model is read when it is first needed.

    Args:
        name: of the component.
        model: a model's folder or archive, or a name on the hub.
        settings: layers, max_tokens, precision, device: as in TokenVectors.
    """

    def __init__(self, name: str, model: str | os.PathLike[str], **settings: Any) -> None:
        self.name, self.model, self.settings = name, model, settings

    @functools.cached_property
    def vectors(self) -> TokenVectors:
        """The model, read now if it has not been. Raises: ElmoFastError, CheckpointError."""
        return TokenVectors(self.model, **self.settings)

    def __call__(self, doc: Any) -> Any:
        """Annotate one Doc and return it. Raises: ElmoFastError, CheckpointError."""
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 128) -> Iterator[Any]:
        """Annotate Docs, the sentences of `batch_size` of them sorted by length and run together."""
        for docs in _util.minibatch(stream, size=batch_size):
            try:
                self._annotate(docs)
            except Exception as error:  # noqa: BLE001 (the pipeline's handler decides; spaCy's own raises)
                self.get_error_handler()(self.name, self, docs, error)
            else:
                yield from docs

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> None:
        """Write the model itself into the folder, so that a saved pipeline is complete. Raises: CheckpointError."""
        save_bilm(path, self.vectors.bilm)

    def from_disk(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> "ElmoPipe":
        """Take the model that to_disk wrote, whatever folder the configuration names."""
        self.model = pathlib.Path(path)
        self.__dict__.pop("vectors", None)
        return self

    def _annotate(self, docs: Sequence[Any]) -> None:
        if torch.cuda._is_in_bad_fork() and str(self.settings.get("device")).startswith("cuda"):
            raise ElmoFastError(
                "n_process starts processes by fork, in which CUDA cannot be used once this one has used it: leave "
                "n_process at 1, as one process keeps a GPU busy, and raise batch_size"
            )
        runs = [
            (i, [token for token in span if not token.is_space])
            for i, doc in enumerate(docs)
            for span in (doc.sents if doc.has_annotation("SENT_START") else [doc])
        ]
        tables = [np.zeros((len(doc), self.vectors.width), np.float32) for doc in docs]
        results = self.vectors([token.text for token in tokens] for _, tokens in runs)
        for (i, tokens), rows in zip(runs, results, strict=True):
            tables[i][[token.i for token in tokens]] = rows
        for doc, table in zip(docs, tables, strict=True):
            hook = doc.user_hooks.get("vector")
            earlier = isinstance(hook, functools.partial) and hook.args == (_tensor,)  # its tensor is ours already
            if doc.tensor is None or doc.tensor.size == 0 or earlier:
                doc.tensor = table
            else:
                doc.user_data[USER_DATA] = table
            set_hooks(doc)


def set_hooks(doc: Any) -> None:
    """Set the hooks behind `.vector` and `.similarity` of a Doc that lost them: from to_bytes, or with n_process=2.

    The vectors are those of an earlier run of the component; an existing hook of another component stays, with a
    warning. Raises: ElmoFastError for a Doc without vectors.
    """
    free = USER_DATA not in doc.user_data
    if free and len(doc.tensor) != len(doc):
        raise ElmoFastError(f"this Doc of {len(doc)} tokens has no vectors of elmo_fast; run the component on it")
    names = []
    for kind, hooks in (("token", doc.user_token_hooks), ("span", doc.user_span_hooks), ("doc", doc.user_hooks)):
        hook = hooks.get("vector")
        if hook is not None and not (isinstance(hook, functools.partial) and hook.func is _vector):
            names.append(kind)
            continue
        hooks["vector"] = functools.partial(_vector, _tensor if free else _user_data)
        hooks.setdefault("has_vector", _has_vector)
        hooks.setdefault("similarity", _similarity)
    if names:
        where = "doc.tensor" if free else f"doc.user_data[{USER_DATA!r}]"
        warnings.warn(
            f"another component has set the vector hook of {', '.join(names)}: left as it is; ELMo's are in {where}",
            stacklevel=2,
        )


_tensor = operator.attrgetter("tensor")


def _user_data(doc: Any) -> Array:
    vectors: Array | None = doc.user_data.get(USER_DATA)
    if vectors is None or len(vectors) != len(doc):
        raise ElmoFastError(
            f"this Doc of {len(doc)} tokens was made from another after elmo_fast had run; run elmo_fast on it"
        )
    return vectors


def _vector(read: Callable[[Any], Array], here: Any) -> Array:
    """Return the vector of a token; of a span or Doc the mean of its tokens, or zeros.

    White space, whose vectors are zero, counts, as in spaCy's own mean: without hooks a Doc has the same vector.
    """
    if isinstance(here, _tokens.Token):
        return read(here.doc)[here.i]
    vectors = read(here) if isinstance(here, _tokens.Doc) else read(here.doc)[here.start : here.end]
    return vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1], np.float32)


def _has_vector(here: Any) -> bool:
    return bool(here.vector.any())


def _similarity(here: Any, other: Any) -> float:
    """Compute the cosine of two vectors, 0 if one is zero. spaCy's own takes the same word for the same vector."""
    a, b = here.vector, other.vector
    if a.shape != b.shape:
        raise ElmoFastError(
            f"similarity compares vectors of one width; {str(here)!r:.40} has {a.shape[-1]}, {str(other)!r:.40} has "
            f"{b.shape[-1]}; run the same elmo_fast on both"
        )
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.dot(a, b)) / norms if norms else 0.0
