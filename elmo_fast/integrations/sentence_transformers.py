"""sentence-transformers: ELMo as the first module of a SentenceTransformer."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from elmo_fast.checkpoints import pretrained_folder
from elmo_fast.embed.layers import Layers, chosen_layers, combined_width
from elmo_fast.embed.sentence_vectors import long_activations
from elmo_fast.errors import ElmoFastError, check_choice, require
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.elmo import save_bilm
from elmo_fast.op_choices import TOKENIZERS, Backend, InferencePrecision, Tokenizer
from elmo_fast.text import checked_sentences, tokenizer
from elmo_fast.text.tokenizers import RAW_TEXT

_InputModule: Any = require("sentence_transformers.base.modules", "sbert", __name__).InputModule
MAX_TOKENS = 4096  # run at a time where no gradient is wanted


class ElmoTokens(_InputModule):
    """ELMo's vectors of the tokens of texts, as input to a Pooling or another module.

    Texts are split by a tokenizer; each starts from a zero state. The module trains with the rest of the model if
    requires_grad is set, and is saved with its weights; SentenceTransformer(folder, trust_remote_code=True) loads
    it, since its class is no part of sentence-transformers.

    Args:
        model: a model's folder or archive, a name on the hub, or a BiLM with stateful=False.
        layers: "average" of all, the "top", "all" side by side, a number from 0 (the word encoder), or several.
        max_seq_length: maximum number of tokens of a text, the rest is cut off; None: no maximum.
        requires_grad: whether the biLM is trained.
        precision, backend: as in BiLM.
        text_tokenizer: "whitespace", "basic", "spacy" or "logs"; None: the model's, or "basic" if it stores none.

    Raises: ElmoFastError, CheckpointError.
    """

    config_file_name = "elmo_tokens.json"  # config.json is the model's own
    config_keys = ("layers", "max_seq_length", "requires_grad", "precision", "backend", "text_tokenizer")
    save_in_root = False
    tokenizer = None

    def __init__(
        self,
        model: str | os.PathLike[str] | BiLM,
        layers: Layers = "average",
        max_seq_length: int | None = None,
        requires_grad: bool = False,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
        text_tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        self.layers, self.max_seq_length, self.requires_grad = layers, max_seq_length, requires_grad
        self.precision, self.backend = precision, backend
        if not isinstance(model, BiLM):
            folder = pretrained_folder(model)
            model = BiLM(folder, None, requires_grad, stateful=False, precision=precision, backend=backend)
        if model.stateful:
            raise ElmoFastError(
                "model must be a BiLM with stateful=False, since each text runs by itself; got stateful=True"
            )
        self.bilm = model
        self.text_tokenizer: str = text_tokenizer or model.options.tokenizer or RAW_TEXT
        check_choice("text_tokenizer", self.text_tokenizer, TOKENIZERS)  # a name: it is stored
        self._split = tokenizer(self.text_tokenizer)
        self._width = combined_width(layers, model.num_layers, model.get_output_dim())

    def get_embedding_dimension(self) -> int:
        """W, the width that a Pooling asks for."""
        return self._width

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, torch.Tensor]:
        """Convert texts to 'input_ids' [B, T, C] and 'attention_mask' [B, T], both int64; T is at least 1.

        The inputs are character ids, or word ids [B, T] where the model reads those.

        Raises: ElmoFastError where an input is no text.
        """
        texts = checked_sentences(inputs, "inputs", lambda text: self._split((prompt or "") + text), texts_only=True)
        sentences = [words[: self.max_seq_length] for words in texts]
        lengths = torch.tensor([len(words) for words in sentences], device="cpu")
        ids = self.bilm.batch_to_ids(sentences)
        if ids.shape[1] == 0:
            ids = ids.new_zeros(len(sentences), 1, *ids.shape[2:])
        mask = torch.arange(ids.shape[1], device="cpu") < lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add 'token_embeddings' [B, T, W] to 'input_ids' and 'attention_mask'; zeros at padding."""
        ids = features["input_ids"]
        words = ids > 0 if self.bilm.reads_words else (ids > 0).any(dim=-1)
        with torch.set_grad_enabled(self.requires_grad and torch.is_grad_enabled()):
            at_once = len(ids) if torch.is_grad_enabled() else max(1, MAX_TOKENS // ids.shape[1])
            parts = zip(ids.split(at_once), words.sum(dim=1).split(at_once), strict=True)
            vectors = torch.cat([self._vectors(part, int(lengths.max())) for part, lengths in parts])
            features["token_embeddings"] = torch.where(words[..., None], vectors, 0)
        return features

    def _vectors(self, ids: torch.Tensor, longest: int) -> torch.Tensor:
        """Return the vectors [B, T, W] of ids [B, T, C], `longest` of them words at most; a long row in chunks."""
        inner = ids[:, :longest]
        if len(ids) == 1 and longest > MAX_TOKENS and not torch.is_grad_enabled():
            layers = [layer[None] for layer in long_activations(self.bilm, inner[0], MAX_TOKENS)]
        else:
            layers = [layer[:, 1:-1] for layer in self.bilm(inner)["activations"]]
        return torch.nn.functional.pad(
            torch.cat(chosen_layers(layers, self.layers), dim=-1), (0, 0, 0, ids.shape[1] - longest)
        )

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the model (config.json, model.safetensors) and the arguments. Raises: CheckpointError."""
        save_bilm(output_path, self.bilm)
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "ElmoTokens":
        """Return the module that save wrote, from a folder or the hub. Raises: CheckpointError."""
        named = ("token", "cache_folder", "revision", "local_files_only")
        where = {"subfolder": subfolder} | {key: kwargs[key] for key in named if key in kwargs}
        return cls(cls.load_dir_path(model_name_or_path, **where), **cls.load_config(model_name_or_path, **where))
