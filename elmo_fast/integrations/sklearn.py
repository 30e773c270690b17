"""scikit-learn: a transformer from texts to vectors."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from elmo_fast.embed.layers import Layers, column_names
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError, check_choice, require
from elmo_fast.op_choices import POOLS, InferencePrecision, Pool, Tokenizer
from elmo_fast.text import checked_sentences
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.tokenizers import RAW_TEXT, Tokenize

_base = require("sklearn.base", "tasks", "elmo_fast.integrations.sklearn")
_Transformer: Any = _base.TransformerMixin
_Estimator: Any = _base.BaseEstimator


class ElmoVectorizer(_Transformer, _Estimator):
    """One vector per text, as of `ElmoEmbedder.encode`.

    Nothing is learned: `fit` checks the arguments and reads the model. The estimator holds the model's name, not its
    weights: a clone costs nothing, and a pickle needs the model in the same place. The last model is cached for all
    estimators of a process. In a grid search over later steps, `Pipeline(..., memory=folder)` computes the vectors
    once.

    Args:
        model: a model's folder or archive, or a name on the hub ("user/name@revision").
        layers: "average" of all, the "top", "all" side by side, a number from 0 (the word encoder), or several.
        pool: how the vectors of a text's tokens become one: "mean", "max" or "first_last", as in `encode`.
        tokenizer: "whitespace", "basic", "spacy", "logs", or a function from a text to its tokens; None: the model's,
            or "basic" if it stores none.
        precision: "float32" | "bfloat16" | "float16" | "int8", of the operands of matrix products.
        device: "cpu", "cuda", "cuda:1".
        batch_size, max_tokens: as in TokenVectors.

    Source: Perone et al. 2018, "Evaluation of sentence embeddings in downstream and linguistic probing tasks", for the
    mean as a strong and simple choice.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        layers: Layers = "average",
        pool: Pool = "mean",
        tokenizer: Tokenizer | Tokenize | None = None,
        precision: InferencePrecision = "float32",
        device: str = "cpu",
        batch_size: int = 64,
        max_tokens: int = 4096,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pool = pool
        self.tokenizer = tokenizer
        self.precision = precision
        self.device = device
        self.batch_size = batch_size
        self.max_tokens = max_tokens

    def fit(self, X: Iterable[str | Sequence[str]], y: Any = None) -> "ElmoVectorizer":
        """Check the arguments and the texts, and read the model. Raises: ElmoFastError, CheckpointError."""
        vectors = self._vectors()
        for _ in self._sentences(X, vectors):
            pass
        self._n_features_out = vectors.width
        return self

    def transform(self, X: Iterable[str | Sequence[str]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the vectors of N texts, [N, W] float32; zeros for a text without tokens.

        Args:
            X: N texts (str, cut by `tokenizer`) or lists of tokens.

        Raises: ElmoFastError naming the row that is neither, CheckpointError.
        """
        vectors = self._vectors()
        return vectors.pooled(self._sentences(X, vectors), self.pool)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, np.dtype[np.object_]]:
        """Return the names of the vectors' numbers, elmo_0, elmo_1, ..., as `encode(output="pandas")` names them.

        input_features: ignored. Raises: scikit-learn's NotFittedError before `fit`.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "_n_features_out")
        return np.array(column_names(self._n_features_out), dtype=object)

    def _vectors(self) -> TokenVectors:
        if self.model is None:
            raise ElmoFastError('ElmoVectorizer needs a model: ElmoVectorizer("folder"), or set_params(model="folder")')
        check_choice("pool", self.pool, POOLS)
        return TokenVectors(
            self.model,
            self.layers,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            precision=self.precision,
            device=self.device,
        )

    def _sentences(self, texts: Any, vectors: TokenVectors) -> Iterable[Sequence[str]]:
        split = tokenizer_of(self.tokenizer or vectors.bilm.options.tokenizer or RAW_TEXT)
        return checked_sentences(texts, "X", split)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []  # float32, whatever comes
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
