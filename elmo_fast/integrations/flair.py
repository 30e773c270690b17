"""flair: ELMo as token embeddings, in place of flair's own class, which needed allennlp 0.9."""

import os
from typing import Any

import torch

from elmo_fast.checkpoints import ElmoOptions, pretrained_folder
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import check_choice, require
from elmo_fast.modules.bilm import BiLM
from elmo_fast.text import Vocabulary

_flair = require("flair", "flair", __name__)
_embeddings = require("flair.embeddings.base", "flair", __name__)
_TokenEmbeddings: Any = _embeddings.TokenEmbeddings


@_embeddings.register_embeddings
class ElmoEmbeddings(_TokenEmbeddings):
    """flair's ELMoEmbeddings on elmo_fast: each token's layers side by side, its top layer, or their average.

    As flair's, but without carried state: a sentence always has the same vectors. A saved flair model contains the
    biLM's weights.

    Args:
        model: a model's folder or archive, or a name on the hub; with the two files, the name that messages show.
        options_file, weight_file: bilm-tf's pair, instead of a folder.
        embedding_mode: "all" | "top" | "average".
        settings: batch_size, max_tokens: as in TokenVectors; precision, backend: as in BiLM.

    Raises: ElmoFastError, CheckpointError.

    Source: flair 0.15's `ELMoEmbeddings`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        options_file: str | os.PathLike[str] | None = None,
        weight_file: str | os.PathLike[str] | None = None,
        embedding_mode: str = "all",
        **settings: Any,
    ) -> None:
        check_choice("embedding_mode", embedding_mode, ("all", "top", "average"))
        self.name, self.static_embeddings = f"elmo-{os.fspath(model)}-{embedding_mode}", True
        super().__init__()
        saved = settings.pop("_saved", None)  # from_params: options and vocabulary of a biLM whose weights come later
        files = {"model": model, "options_file": options_file, "weight_file": weight_file}
        self._source: dict[str, Any] = {name: None if path is None else os.fspath(path) for name, path in files.items()}
        self.embedding_mode, self._settings = embedding_mode, settings
        self._run = {key: value for key, value in settings.items() if key in ("batch_size", "max_tokens")}
        self._of_bilm = {key: value for key, value in settings.items() if key not in self._run}
        with torch.device("cpu"):
            self.bilm = self._read() if saved is None else BiLM(stateful=False, **saved, **self._of_bilm)
        self._filled = saved is None
        self.register_load_state_dict_post_hook(_note_filled)
        self.to(_flair.device)

    def _read(self) -> BiLM:
        files = self._source["options_file"], self._source["weight_file"]
        place = files if any(files) else (pretrained_folder(self._source["model"]), None)
        return BiLM(*place, stateful=False, **self._of_bilm)

    @property
    def embedding_length(self) -> int:
        """W, numbers per token."""
        return TokenVectors(self.bilm, self.embedding_mode).width

    def _add_embeddings_internal(self, sentences: list[Any]) -> list[Any]:
        if not self._filled:
            self.bilm.load_state_dict(self._read().state_dict())
            self._filled = True
        vectors = TokenVectors(self.bilm, self.embedding_mode, **self._run)
        results = vectors([token.text for token in sentence] for sentence in sentences)
        for sentence, rows in zip(sentences, results, strict=True):
            for token, row in zip(sentence, torch.from_numpy(rows).to(_flair.device), strict=True):
                token.set_embedding(self.name, row)
        return sentences

    def to_params(self) -> dict[str, Any]:
        """Return what from_params needs for an equal module, except the weights: flair keeps those in a state_dict."""
        words = getattr(self.bilm.encoder, "vocabulary", None)
        return {
            **self._source,
            "embedding_mode": self.embedding_mode,
            "settings": self._settings,
            "options": self.bilm.options.to_dict(),
            "vocabulary": None if words is None else words.words,
        }

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoEmbeddings":
        """Create the module of to_params.

        Its weights come from the state_dict that flair loads next, or else from the files, once they are needed.
        """
        names = ("model", "options_file", "weight_file", "embedding_mode")
        words = None if params.get("vocabulary") is None else Vocabulary(params["vocabulary"], "a saved flair model")
        options = ElmoOptions.from_dict(params["options"], "a saved flair model")
        source: dict[str, Any] = {name: params.get(name) for name in names}
        return cls(**source, **params["settings"], _saved={"options_file": options, "vocabulary": words})

    def __str__(self) -> str:
        return self.name

    def extra_repr(self) -> str:
        """Return what the module's printed form shows."""
        return f"model={self.name}"


def _note_filled(module: Any, incompatible: Any) -> None:
    module._filled = True
