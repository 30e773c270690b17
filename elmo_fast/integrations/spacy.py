"""spaCy: the pipeline component "elmo_fast", which gives every token its ELMo vector."""

import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from elmo_fast.errors import require
from elmo_fast.integrations._spacy_docs import attach_vectors, sentences_of
from elmo_fast.modules.elmo import save_bilm
from elmo_fast.modules.token_vectors import TokenVectors

_language = require("spacy.language", "spacy", "elmo_fast.integrations.spacy")
_Pipe: Any = require("spacy.pipeline", "spacy", "elmo_fast.integrations.spacy").Pipe
_util = require("spacy.util", "spacy", "elmo_fast.integrations.spacy")

_DEFAULTS = {"layers": "average", "precision": "float32", "device": "cpu", "max_tokens": 4096}


@_language.Language.factory("elmo_fast", assigns=["doc.tensor"], default_config=_DEFAULTS)
def make_elmo_fast(
    nlp: Any, name: str, model: str, layers: int | list[int] | str, precision: str, device: str, max_tokens: int
) -> "ElmoPipe":
    """The component of `nlp.add_pipe("elmo_fast", config={"model": folder})`; arguments as in TokenVectors."""
    settings = {"precision": precision, "device": device}
    return ElmoPipe(name, model, layers=layers, max_tokens=max_tokens, **settings)


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
        self._loaded: TokenVectors | None = None

    @property
    def vectors(self) -> TokenVectors:
        """The model, read now if it has not been. Raises: ElmoFastError, CheckpointError."""
        if self._loaded is None:
            self._loaded = TokenVectors(self.model, **self.settings)
        return self._loaded

    def __call__(self, doc: Any) -> Any:
        """Annotates one Doc and returns it. Raises: ElmoFastError, CheckpointError."""
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 128) -> Iterator[Any]:
        """Annotates Docs, the sentences of `batch_size` of them sorted by length and run together."""
        for docs in _util.minibatch(stream, size=batch_size):
            try:
                self._annotate(docs)
            except Exception as error:  # noqa: BLE001 (the pipeline's handler decides; spaCy's own raises)
                self.get_error_handler()(self.name, self, docs, error)
            else:
                yield from docs

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> None:
        """Writes the model itself into the folder, so that a saved pipeline is complete. Raises: CheckpointError."""
        save_bilm(path, self.vectors.bilm)

    def from_disk(self, path: str | os.PathLike[str], *, exclude: Sequence[str] = ()) -> "ElmoPipe":
        """Takes the model that to_disk wrote, whatever folder the configuration names."""
        self.model, self._loaded = pathlib.Path(path), None
        return self

    def _annotate(self, docs: Sequence[Any]) -> None:
        runs = [(doc, tokens) for doc, known in enumerate(docs) for tokens in sentences_of(known)]
        tables = [np.zeros((len(doc), self.vectors.width), np.float32) for doc in docs]
        results = self.vectors([token.text for token in tokens] for _, tokens in runs)
        for (doc, tokens), rows in zip(runs, results, strict=True):
            tables[doc][[token.i for token in tokens]] = rows
        for known, table in zip(docs, tables, strict=True):
            attach_vectors(known, table)
